"""A fit says what its log shows beyond tables of means."""

from dataclasses import replace

import numpy as np

from evaluation.problems.placement.dependences import NOTHING, dependences_in_words, dependences_of
from tests.twin.made import made_cluster
from twin.placement.cold_starts import ColdStarts
from twin.placement.priorities import Priorities
from twin.placement.reported_ends import ReportedEnds
from twin.placement.run_filter import DRIFT_PER_DAY, RunDynamics
from twin.placement.run_labels import RunLabels
from twin.placement.tides import Tide
from twin.placement.types import Reaction, Repeats
from twin.placement.wakes import Wakes


def test_a_log_of_means_shows_nothing_else():
    assert dependences_in_words(dependences_of(made_cluster())) == f"the log shows {NOTHING}"


def test_every_dependence_is_named_with_its_size():
    cluster = replace(
        made_cluster(), tide=Tide(variance=0.04), node_tide=Tide(variance=0.25), pressure=np.array([0.0, 0.2, 0.1]),
        cold=ColdStarts(600.0, np.array([0.0, 20.0, 5.0])), reaction=Reaction(64, -0.38, 0.3), scarce=(1, 2),
        wakes=Wakes(np.full(4, 300.0), np.array([0.0, 60.0, 120.0, 0.0])),
        hazard=(0.0, 1e-4, 0.0, 2e-4), repeats=Repeats(0.62, 45.0, 200.0),
        queues=("unknown", "low", "high", "higher"), priorities=Priorities((2, 2, 1, 0), True),
    )  # fmt: skip
    words = dependences_in_words(dependences_of(cluster))
    for part in (
        "everywhere (by some 22%)",
        "nodes that are slower for a while (by some 65%)",
        "2 services whose runs",
        "after 600 s (up to 20 s)",
        "by up to 38%",
        "requests that wait for memory_gib and gpus",
        "2 nodes that sleep when idle (and wake within 120 s)",
        "nodes that lose what runs on them (up to 0.72 times in an hour of running)",
        "clients who repeat 62% of failed requests (after some 45 s)",
        "queues that go first and drive others out: higher, then high, then low",
    ):
        assert part in words


def test_labels_and_driven_out_services_are_named_with_their_sizes():
    cluster = made_cluster()
    room, slowness = np.linspace(1.5, 4.5, cluster.num_nodes), np.full(cluster.num_nodes, 2.0)
    cold = ColdStarts(600.0, np.array([0.0, 20.0, 5.0]), room, slowness)
    of_scenario, of_queue = np.ones((3, 3)), np.ones((3, 2))
    of_scenario[1] = 1.0, 0.5, 2.0
    words = dependences_of(replace(cluster, cold=cold), RunLabels(of_scenario, of_queue))
    assert words == [
        "run times of a service that differ between scenarios (4.0 times)",
        "services that start cold after 1.5 to 4.5 other services ran on the node (up to 40 s)",
    ]
    part = np.ones((3, cluster.num_nodes))
    part[1, :2] = 0.1
    *_, last = dependences_of(replace(cluster, cold=replace(cold, part=part)))
    assert last == "2 pairs of a service and a node on which it hardly ever starts cold"


def test_amended_ends_are_named():
    ends = ReportedEnds(True, True, {}, {}, {}, 8.0, 2.0, (0.0,))
    wanted = "ends of runs that are missing or too late, amended by what its nodes can hold"
    assert dependences_of(made_cluster(), ends=ends) == [wanted]
    (late,) = dependences_of(made_cluster(), ends=replace(ends, loses=False))
    assert late.startswith("ends of runs that are too late, amended")


def test_run_times_that_more_than_what_is_usual_tells_of_are_named():
    (found,) = dependences_of(made_cluster(), run_share=0.5)
    assert "load, hour or request" in found


def test_the_slow_drift_that_is_followed_in_any_case_is_nothing_that_a_log_shows():
    still = RunDynamics(scatter=0.1, drift_per_day=DRIFT_PER_DAY)
    assert still.moves
    assert dependences_of(replace(made_cluster(), dynamics=still)) == []
    for moving in (replace(still, node_variance=0.01), replace(still, drift_per_day=2 * DRIFT_PER_DAY)):
        (found,) = dependences_of(replace(made_cluster(), dynamics=moving))
        assert found == "run times of nodes and services that move, and are followed"
