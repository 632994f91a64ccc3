"""Settings in the guides: a reader who copies them gets what the guide says, not an error."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agents.cli.config import check

GUIDES = Path(__file__).parents[3] / "docs" / "guide"
NAMES = ("ladder", "fallback", "semantic-cache")


def blocks() -> list[tuple[str, str]]:
    """Guide and text of each block of settings."""
    return [(name, block) for name in NAMES for block in re.findall(r"^```toml\n(.*?)^```", (GUIDES / f"{name}.md").read_text(), re.DOTALL | re.MULTILINE)]


@pytest.mark.parametrize(("guide", "block"), blocks(), ids=lambda text: text.split()[0])
def test_settings_of_the_guides_load(guide: str, block: str, tmp_path: Path) -> None:
    """`config check` finds nothing wrong in a block that is copied as it is."""
    config = tmp_path / f"{guide}.toml"
    config.write_text(block)
    assert check(config=config) == 0
