"""`python -m agents.cli`, the same as the command `answerby`."""

from agents.cli.main import main

main()
