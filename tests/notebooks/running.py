"""A notebook as a program: its code cells in order, in one namespace, what they display collected."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run_notebook(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, Any], list[Any]]:
    """Runs a notebook without a notebook server.

    Returns:
        The namespace at the end, and everything that was displayed.

    Raises:
        Whatever a cell raises, with the cell's name in the traceback.
    """
    shown: list[Any] = []
    stand_in = ModuleType("IPython.display")
    stand_in.SVG, stand_in.display = str, shown.append  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", stand_in)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, {cell['id']}", "exec"), namespace)
    return namespace, shown
