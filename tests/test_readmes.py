"""READMEs name files and folders that there are."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("logs_schema", "twin", "offline_rl", "evaluation")
READMES = [
    ROOT / "README.md",
    *(file for one in PACKAGES for file in sorted((ROOT / one).rglob("README.md"))),
]


def named_in(text: str) -> list[str]:
    """Files of code, and folders, between backticks."""
    return re.findall(r"`((?:\w+/)*[\w*]+\.py|(?:\w+/)+)`", text)


def is_there(name: str, readme: Path) -> bool:
    """A path from the root or a package, or a name somewhere below the README's folder."""
    starts = [ROOT, *(ROOT / package for package in PACKAGES)]
    return any(any(start.glob(name)) for start in starts) or any(readme.parent.rglob(name))


def test_files_and_folders_between_backticks_are_found():
    text = "`a.py`, `b/c.py` and `d/`, `e_*.py`; `run(a.py)`, `x.y` `/order`"
    assert named_in(text) == ["a.py", "b/c.py", "d/", "e_*.py"]


@pytest.mark.parametrize("readme", READMES, ids=lambda file: str(file.relative_to(ROOT)))
def test_what_a_readme_names_is_there(readme):
    missing = [name for name in named_in(readme.read_text(encoding="utf-8")) if not is_there(name, readme)]
    assert missing == []
