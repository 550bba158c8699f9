"""A log of a simulator that shares no code with the project's, and what is exported from it: `dispatch_loop`."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tests.benchmarks.bench_other_simulator import LOGGED, SHORTEST, policies_of, rows_of
from tests.reference.dispatch_loop import (
    DAY_S,
    KINDS,
    NUM_NODES,
    Dispatcher,
    Job,
    Kind,
    World,
    play,
)
from tests.reference.dispatch_users import play_days

FEW_UPDATES = """
[train]
seeds = [0]
num_updates = 5
residual_updates = 5
num_streams = 120
clone_updates = 200
tuning_streams = 72
"""


class Fixed(Dispatcher):
    """Decides as it was given, node after node."""

    def __init__(self, nodes: Sequence[int]) -> None:
        self._nodes = nodes

    def choose(self, number: int, _job: Job, _in_flight: Sequence[float]) -> tuple[int, float]:
        return self._nodes[number], 1.0


def test_one_server_after_another_by_lindleys_recursion():
    """Every request starts when it comes and the one before it on its node has ended."""
    world = World(KINDS["queueing"], 3, per_day=2_000)
    jobs = world.jobs(0, 1, 4)
    nodes = np.random.default_rng(5).integers(0, 8, len(jobs))
    free_s = np.zeros(8)
    for job, node, run in zip(jobs, nodes, play(world, jobs, Fixed(nodes.tolist()), 6), strict=True):
        start_s = max(job.arrival_s, free_s[node])
        free_s[node] = start_s + world.mean_s[job.service, node] * job.luck
        assert run.start_s == pytest.approx(start_s, abs=1e-6)
        assert run.finish_s == pytest.approx(free_s[node], abs=1e-6)


class InTurn(Dispatcher):
    """One node after another, the first few of them."""

    def __init__(self, num_nodes: int) -> None:
        self._num_nodes = num_nodes

    def choose(self, number: int, _job: Job, _in_flight: Sequence[float]) -> tuple[int, float]:
        return number % self._num_nodes, 1.0


def test_users_of_a_closed_system_think_after_every_run():
    """So on one node they get little done, however much they want, and on all of them more."""
    world = World(KINDS["closed"], 3)
    found = {}
    for num_nodes in (1, NUM_NODES):
        jobs, runs = play_days(world, 0, 1, InTurn(num_nodes), (4, 5))
        found[num_nodes] = len(jobs)
        for user in range(world.kind.users):
            mine = [number for number, job in enumerate(jobs) if job.user == user]
            thought_s = [jobs[b].arrival_s - runs[a].finish_s for a, b in itertools.pairwise(mine)]
            assert min(thought_s) > 0.0
    assert 3 * found[1] < found[NUM_NODES]
    node_s = sum(run.finish_s - run.start_s for run in play_days(world, 0, 1, InTurn(1), (4, 5))[1])
    assert node_s == pytest.approx(DAY_S, rel=0.1), "the one node is busy all day"


def test_a_shared_node_by_hand():
    """Two runs of 10 s, 5 s apart: half of the rate for both from then on, so they end at 15 and 20 s."""
    world = World(Kind(0.5, 1.0, cores=64, pair_spread=0.0, shared=True), 0)
    world.mean_s[:] = 10.0
    jobs = [Job(0.0, 0, None, 1.0, 60.0), Job(5.0, 1, None, 1.0, 60.0)]
    runs = play(world, jobs, Fixed([2, 2]), 0)
    assert [(run.start_s, run.finish_s) for run in runs] == [
        (0.0, pytest.approx(15.0)),
        (5.0, pytest.approx(20.0)),
    ]


def test_a_cold_start_and_a_warm_one():
    world = World(KINDS["cold_starts"], 0)
    world.mean_s[:] = 10.0
    jobs = [Job(at_s, 0, None, 1.0, 60.0) for at_s in (0.0, 400.0, 5_000.0)]
    runs = play(world, jobs, Fixed([0, 0, 0]), 0)
    cold_s = 5.0 + 1.2 * world.unit_s
    is_warm = cold_s + 600.0 > 400.0
    assert [run.finish_s - run.start_s for run in runs] == pytest.approx(
        [cold_s, 5.0 if is_warm else cold_s, cold_s]
    )


@pytest.mark.parametrize(
    ("asked", "starts"),
    [
        ([(6, 0), (6, 0), (1, 0)], [0.0, 10.0, 10.0]),
        ([(1, 1), (1, 1), (1, 1), (1, 0)], [0.0, 1.0, 10.0, 10.0]),
    ],
)
def test_requests_wait_behind_one_that_does_not_fit_by_hand(asked, starts):
    """On eight cores the second six wait for the first; on two GPUs the third request; and the last behind them."""
    world = World(KINDS["wide"], 0)
    world.mean_s[:] = 10.0
    jobs = [Job(float(at), 0, None, 1.0, 60.0, *each) for at, each in enumerate(asked)]
    runs = play(world, jobs, Fixed([0] * len(jobs)), 0)
    assert [run.start_s for run in runs] == pytest.approx(starts)


@pytest.mark.slow
def test_what_is_exported_from_a_log_of_shared_nodes_is_better_there_than_the_shortest_queue(tmp_path):
    """The twin draws works, so later requests slow runs that have begun: without, it did not pass its certificate.
    Without how a crowd slows runs, the rule from the log sends all to the same nodes, and had half of the shortest
    queue's share on time."""
    bundles, status = policies_of(KINDS["sharing"], 2, tmp_path, FEW_UPDATES)
    assert status == 0
    found = {(row.day, row.policy): row.on_time for row in rows_of("sharing", 2, bundles, status)}
    for day in ("next day", "four weeks"):
        assert found[day, SHORTEST] > found[day, LOGGED]
        assert found[day, "expected_on_time"] > found[day, SHORTEST] + 0.2
        assert found[day, "ladder"] > found[day, SHORTEST] + 0.2
