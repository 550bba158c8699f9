"""The expected on-time rule of a twin by slots, with the log's numbers: what dispatchers begin as, and have to beat."""

import numpy as np

from offline_rl.contract import SHARPNESS
from offline_rl.networks import near_best_policy
from offline_rl.rules.on_time_by_replicas import replica_rule, replica_rule_params
from twin.contracts import Array, Policy, PyTree
from twin.orchestration.fit import CLOUD, ELSEWHERE, LOCAL, FittedCluster
from twin.orchestration.learned import learned_forecast

NEAR = 0.05
"""Chances to be on time that count as equal: access points see each other's load a slot late, and would all send to one
node else. In a twin of `hot_services` 0, .05, .15 and .3 gave .773, .830, .828 and .819 on time under the planned
deployment."""
RULE_MARGIN = NEAR * SHARPNESS
"""The same in logits: of the rule, and of what corrects it, which would else begin as another policy than the rule."""


def dispatch_rule(fitted: FittedCluster, delay_s: float | Array = 0.0) -> Policy:
    """The expected on-time rule with the log's numbers; it draws among the nodes whose chances are near the best.

    Its decisions come `delay_s` late.
    """
    return near_best_policy(replica_rule(), rule_params(fitted, delay_s), margin=RULE_MARGIN)


def rule_params(fitted: FittedCluster, delay_s: float | Array = 0.0) -> PyTree:
    """The rule's numbers in a log: how run times scatter, and how long ways take, decisions that come late included."""
    spread = max(float(np.std(fitted.tables.scatter)), 0.05)
    home, elsewhere, cloud = (one + 0.5 * delay_s for one in _latencies(fitted))  # it counts a latency twice
    return replica_rule_params((home, elsewhere, cloud), spread=spread)


def _latencies(fitted: FittedCluster) -> tuple[float, float, float]:
    """Mean time of a way at home, to another site, to the cloud."""
    forecast, kind = learned_forecast(fitted.edge, fitted.tables), fitted.tables.way_kind
    home, elsewhere, cloud = (
        float(forecast.latency_s[kind == one].mean()) if (kind == one).any() else 0.0
        for one in (LOCAL, ELSEWHERE, CLOUD)
    )
    return home, elsewhere, cloud
