"""Commands that are killed while they save what is done: begun again, they go on from there to the same bytes."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evaluation.commands.statuses import INTERRUPTED
from evaluation.jobs import unfinished
from tests.command import run_silently


class Dying:
    """Saves units, and dies as it begins to save the one at `dies_at`; `saved` are the names of all since `clear`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.saved: list[str] = []
        self.dies_at: int | None = None
        self._writing: Callable[..., object] = unfinished.writing
        monkeypatch.setattr(unfinished, "writing", self._save)

    def _save(self, path: Path, *rest: object, **options: object) -> object:
        self.saved.append(path.name)
        if len(self.saved) == self.dies_at:
            raise KeyboardInterrupt
        return self._writing(path, *rest, **options)

    def names(self, dies_at: int | None, expected: int, *words: object) -> list[str]:
        """What a command saves."""
        self.saved, self.dies_at = [], dies_at
        assert run_silently(*words) == expected
        return self.saved


def resumed(
    monkeypatch: pytest.MonkeyPatch, folder: Path, *words: object, dies_at: int, expected: int = 0
) -> list[str]:
    """The names of all units of an undisturbed command, after it was held against one that was killed and resumed.

    Args:
        monkeypatch: of the test.
        folder: an empty one.
        words: of the command, all but `--out`.
        dies_at: the unit that is not saved any more.
        expected: the exit status.
    """
    dying = Dying(monkeypatch)
    calm, rough = folder / "calm" / "product", folder / "rough" / "product"
    every = dying.names(None, expected, *words, "--out", calm)
    done = dying.names(dies_at, INTERRUPTED, *words, "--out", rough)
    assert not rough.exists()
    again = dying.names(None, expected, *words, "--out", rough)
    assert done[:-1] + again == every  # each once, but for the one that was not saved
    assert [path.name for path in rough.parent.iterdir()] == [rough.name]
    names = {path.relative_to(calm) for path in calm.rglob("*") if path.is_file()}
    assert names == {path.relative_to(rough) for path in rough.rglob("*") if path.is_file()}
    for name in names - {Path("manifest.json")}:  # which has the time
        assert (calm / name).read_bytes() == (rough / name).read_bytes()
    return every
