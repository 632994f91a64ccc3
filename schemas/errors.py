"""The one root of our errors and the families that several folders share; expected outcomes are values, not errors."""

from __future__ import annotations


class AnswerbyError(Exception):
    """Root of every error we raise on purpose; its text is one line that tells the operator what to do."""

    exit_code = 1


class ConfigError(AnswerbyError):
    """Raised when settings are unknown, wrong or contradict each other; mend the key that the text names."""

    exit_code = 2

    def __init__(self, key: str, wrong: str, right: str) -> None:
        self.key = key
        super().__init__(f"{key}: {wrong}; {right}")


class UsageError(AnswerbyError):
    """Raised when a command is called with arguments that cannot work; the text says which."""

    exit_code = 2


class SetupError(AnswerbyError):
    """Raised when something outside the process is not ready (broker, model files, port, disk); the text says what to run."""


class StoreError(AnswerbyError):
    """Raised when a table on disk cannot be read or written; the worker ends, since no event is to blame. Make room or mend the disk, then start it again."""
