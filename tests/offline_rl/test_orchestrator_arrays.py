"""The arrays of an orchestrator are read as those of every bundle: what they unpack to is bounded before they are."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from logs_schema.errors import ProductError
from offline_rl.runner import orchestrator as module
from offline_rl.runner.frame_network import Chosen
from offline_rl.runner.frame_view import FrameView, OrchestrationTables
from offline_rl.runner.orchestrator import (
    ARRAYS,
    FRAMES,
    NUM_FRAMES,
    Orchestrator,
    OrchestratorFacts,
    load_orchestrator,
    write_orchestrator,
)
from tests.offline_rl.test_hostile_bundles import unpacking_to

FACTS = OrchestratorFacts(("a", "b", "c"), ("x", "y"), ("here",), 30.0, 4, 2, 1, True, 1.0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An orchestrator that changes nothing, and as many golden frames as there are."""
    pairs = np.zeros((2, 3))
    fields = OrchestrationTables._fields
    tables = OrchestrationTables(*(pairs if name == "hosts" else np.zeros(3) for name in fields))
    shapes = {"time_of_day_s": (), "up": (3,), "queued": (2, 1), "busy": (4, 2), "requests": (4, 2)}
    golden = {name: np.zeros((NUM_FRAMES, *shapes.get(name, pairs.shape))) for name in FrameView._fields}
    golden |= {name: np.zeros((NUM_FRAMES, FACTS.num_changes), np.int64) for name in Chosen._fields}
    write_orchestrator(tmp_path, Orchestrator(FACTS, tables, {"kernel": np.ones((3, 3))}), golden)
    dispatcher = SimpleNamespace(contract=SimpleNamespace(problem=module.PROBLEM), content_hash="0")
    monkeypatch.setattr(module, "network_while", lambda *_, **__: nullcontext(dispatcher))
    nothing = np.zeros(FACTS.num_changes, np.int64)
    monkeypatch.setattr(Orchestrator, "decide", lambda *_: Chosen(nothing, nothing))
    return tmp_path


def test_an_orchestrator_is_read_as_it_was_written(folder: Path) -> None:
    found = load_orchestrator(folder)
    assert found.facts == FACTS
    assert list(found.arrays) == ["kernel"]
    assert found.tables.hosts.shape == (2, 3)
    with np.load(folder / FRAMES) as golden:
        assert sum(one.nbytes for one in golden.values()) == FACTS.most_bytes_of_frames


@pytest.mark.parametrize(("name", "num_mib"), [(ARRAYS, 80), (FRAMES, 2)])
def test_arrays_that_unpack_to_more_than_names_account_for_are_refused(
    folder: Path, name: str, num_mib: int
) -> None:
    unpacking_to(folder / name, num_mib * 2**20, num_mib * 2**18)
    with pytest.raises(ProductError, match=r"1 arrays of .* bytes, allowed"):
        load_orchestrator(folder)
