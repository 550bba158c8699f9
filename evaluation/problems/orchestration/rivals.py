"""Policies that need no training, made of a twin's tables: what anything learned in the twin has to beat."""

from collections.abc import Callable

import numpy as np

from evaluation.problems.orchestration.bench import Entrants
from evaluation.problems.orchestration.references import LOOKAHEAD, PLANNED, planning
from offline_rl.contract import EXPECTED_ON_TIME, SHARPNESS
from offline_rl.networks import near_best_policy
from offline_rl.rules.on_time_by_replicas import replica_rule, replica_rule_params
from offline_rl.rules.orchestration.planned import load_levels
from twin.contracts import Array, Policy
from twin.orchestration.chance import Chance
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.fit import CLOUD, ELSEWHERE, LOCAL, FittedCluster
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, observing
from twin.orchestration.frame_state import FrameState
from twin.orchestration.learned import learned_chance, learned_forecast
from twin.orchestration.orchestrating import Orchestrate

NEAR = 0.05
"""Chances to be on time that count as equal: access points see each other's load a slot late, and would all send to one
node else. In a twin of `hot_services` 0, .05, .15 and .3 gave .773, .830, .828 and .819 on time under the planned
deployment."""

RULE_MARGIN = NEAR * SHARPNESS
"""The same in logits: of the rule, and of what corrects it, which would else begin as another policy than the rule."""


def rivals(fitted: FittedCluster) -> Entrants:
    """The rule of expected on-time dispatch, the planned deployment and the lookahead, all of one twin."""
    forecast = learned_forecast(fitted.edge, fitted.tables)

    def planner(name: str) -> Callable[[EdgeCloud, FrameConfig, Dispatch], Orchestrate]:
        def make(case: EdgeCloud, frames: FrameConfig, dispatch: Dispatch) -> Orchestrate:
            model = case._replace(pull_s=fitted.edge.pull_s, pull_mib=fitted.edge.pull_mib)

            level = load_levels(model, forecast)

            def model_of(state: FrameState) -> Chance:
                begin_s = state.clock_s[..., None, None]
                return learned_chance(model, fitted.tables, begin_s, level=level(state)[..., None, None])

            return planning(name, model, forecast, model_of, dispatch, frames)

        return make

    rule = dispatch_rule(fitted)
    return Entrants(
        {EXPECTED_ON_TIME: lambda case: observing(case, rule)},
        {name: planner(name) for name in (PLANNED, LOOKAHEAD)},
        fitted.edge.cluster,
    )


def dispatch_rule(fitted: FittedCluster, delay_s: float | Array = 0.0) -> Policy:
    """The expected on-time rule with the log's numbers; it draws among the nodes whose chances are near the best.

    Its decisions come `delay_s` late.
    """
    spread = max(float(np.std(fitted.tables.scatter)), 0.05)
    home, elsewhere, cloud = (one + 0.5 * delay_s for one in latencies(fitted))  # it counts a latency twice
    params = replica_rule_params((home, elsewhere, cloud), spread=spread)
    return near_best_policy(replica_rule(), params, margin=RULE_MARGIN)


def latencies(fitted: FittedCluster) -> tuple[float, float, float]:
    """Mean time of a way at home, to another site, to the cloud."""
    forecast, kind = learned_forecast(fitted.edge, fitted.tables), fitted.tables.way_kind
    home, elsewhere, cloud = (
        float(forecast.latency_s[kind == one].mean()) if (kind == one).any() else 0.0
        for one in (LOCAL, ELSEWHERE, CLOUD)
    )
    return home, elsewhere, cloud
