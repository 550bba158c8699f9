"""The node with the shortest expected time to finish, by the true mechanics: links, speeds, affinities, queues."""

from evaluation.baselines.truth_baseline import TruthBaseline, as_behaviour
from evaluation.simulator.behaviour import behaviour

LEAST_EXPECTED_DELAY = TruthBaseline(
    "least_expected_delay",
    "shortest expected time to finish by the true mechanics, without preferences and random variation",
    as_behaviour(behaviour("least_expected_delay")),
)
