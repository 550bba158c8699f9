"""How distances of several seeds are told; the worlds they are measured in keep to themselves what they say they do."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.benchmarks.compounding import MethodErrors, as_ratios, together
from tests.twin.imitation_world import (
    NUM_RETURNING,
    RUN_S,
    WORLDS,
    burst_rows,
    campaign_rows,
    phase_rows,
    returning_rows,
    windows_of,
)
from twin.placement.encode import EncodedRows
from twin.placement.types import REJECTED

MANY = 20_000


def test_ratios_are_paired_by_seed() -> None:
    """Ratios 0.5 and 0.7 of seeds that differ tenfold: their mean is 0.6, the ratio of the means is not."""
    seeds = [
        [MethodErrors("default", np.array([[9.0, 1.0]])), MethodErrors("other", np.array([[9.0, 0.5]]))],
        [MethodErrors("default", np.array([[9.0, 10.0]])), MethodErrors("other", np.array([[9.0, 7.0]]))],
    ]
    found = together(seeds)
    np.testing.assert_array_equal(found[1].distance, [[9.0, 0.5], [9.0, 7.0]])
    *_, of_default, of_other = as_ratios(found, (1, 100), "default", 100).splitlines()
    assert of_default.split()[-3] == "1.000"
    # Student's t of one degree of freedom is 12.706; the deviation of the mean is 0.1
    assert of_other.split()[-3:] == ["0.600", "[-0.671,", "1.871]"]


def test_a_single_seed_has_no_interval() -> None:
    told = as_ratios([MethodErrors("default", np.array([[2.0]]))], (100,), "default", 100)
    assert "[" not in told


@pytest.mark.parametrize("rows_of", [campaign_rows, returning_rows])
def test_agents_keep_their_preference(rows_of: Callable[[int, int], EncodedRows]) -> None:
    rows = rows_of(0, MANY)
    count = np.bincount(rows.request.agent)
    often = count >= 50
    share = np.bincount(rows.request.agent, rows.status != REJECTED)[often] / count[often]
    assert ((share < 0.35) | (share > 0.8)).all()
    assert 0.3 < np.mean(share > 0.5) < 0.7


def test_only_returning_agents_are_told_apart() -> None:
    new, returning = campaign_rows(0, MANY), returning_rows(0, MANY)
    assert np.ptp(new.request.accepts_home) == 0.0
    assert np.corrcoef(returning.request.accepts_home, returning.status != REJECTED)[0, 1] > 0.7


def test_what_is_told_of_returning_agents_is_of_the_log_learned_from() -> None:
    history = returning_rows(0, MANY)
    later = returning_rows(1, 2_000, history=history)
    for agent in range(NUM_RETURNING):
        (told,) = np.unique(history.request.accepts_home[history.request.agent == agent])
        assert (later.request.accepts_home[later.request.agent == agent] == told).all()


def test_nodes_have_slow_and_fast_times_of_their_own() -> None:
    rows = phase_rows(0, MANY)
    run_s = rows.finish_s - rows.start_s
    for node in (0, 1):
        pace = run_s[rows.node == node] > RUN_S
        assert 0.3 < pace.mean() < 0.7
        assert np.mean(pace[1:] == pace[:-1]) > 0.95
    # whether a node is slow says nothing of the next request's node, if that is the other one
    turns = rows.node[1:] != rows.node[:-1]
    agree = (run_s[1:] > RUN_S) == (run_s[:-1] > RUN_S)
    assert 0.4 < np.mean(agree[turns]) < 0.6


def test_bursts_are_shared_by_agents_and_soon_over() -> None:
    rows = burst_rows(0, MANY)
    accepted = (rows.status != REJECTED).astype(float)

    def correlation(apart: int) -> float:
        return float(np.corrcoef(accepted[apart:], accepted[:-apart])[0, 1])

    # of the variance .2475 of one answer .16 is the mood's, which lasts for another request with probability .9
    assert correlation(1) == pytest.approx(0.9 * 0.16 / 0.2475, abs=0.05)
    assert abs(correlation(60)) < 0.05
    share = np.bincount(rows.request.agent, accepted) / np.bincount(rows.request.agent)
    assert np.ptp(share) < 0.1


@pytest.mark.parametrize("name", WORLDS)
def test_windows_hold_all_that_is_in_flight(name: str) -> None:
    windows = windows_of(WORLDS[name](5, 40 * 104), 104)
    assert windows.num_windows == 40
    assert windows.num_overflow == 0
