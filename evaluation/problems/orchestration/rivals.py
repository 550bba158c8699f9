"""Policies that need no training, made of a twin's tables: what anything learned in the twin has to beat."""

from collections.abc import Callable

from evaluation.baselines import BASELINES
from evaluation.problems.orchestration.bench import Entrants
from evaluation.problems.orchestration.references import LOOKAHEAD, PLANNED, planning
from offline_rl.contract import EXPECTED_ON_TIME
from offline_rl.rules.orchestration.expected_on_time import dispatch_rule
from offline_rl.rules.orchestration.planned import PlannedConfig, load_levels, planned
from twin.orchestration.centralised import centrally
from twin.orchestration.chance import Chance
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.fit import FittedCluster
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, observing
from twin.orchestration.frame_state import FrameState
from twin.orchestration.learned import learned_chance, learned_forecast
from twin.orchestration.orchestrator import Orchestrate

CENTRAL_RULE = "expected_on_time_central"
CENTRAL = (CENTRAL_RULE, "firmament_central", "least_loaded_central")
"""What dispatches in one place, which sees every node in full."""


def rivals(fitted: FittedCluster) -> Entrants:
    """The rule of expected on-time dispatch, the planned deployment and the lookahead, all of one twin."""
    forecast = learned_forecast(fitted.edge, fitted.tables)

    def planner(name: str) -> Callable[[EdgeCloud, FrameConfig, Dispatch], Orchestrate]:
        def make(case: EdgeCloud, frames: FrameConfig, dispatch: Dispatch) -> Orchestrate:
            model = fitted.as_known(case)

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


def planner_with(
    fitted: FittedCluster, plan: PlannedConfig
) -> Callable[[EdgeCloud, FrameConfig, Dispatch], Orchestrate]:
    """Makes the planned deployment with numbers of its own; it does not depend on who dispatches."""
    forecast = learned_forecast(fitted.edge, fitted.tables)
    return lambda case, frames, _dispatch: planned(fitted.as_known(case), forecast, frames, plan)


def central_rivals(fitted: FittedCluster, delay_s: float) -> Entrants:
    """`CENTRAL`: the rule of expected on-time dispatch and two baselines in one place, `delay_s` late."""
    named = {one.name: one for one in BASELINES}

    def baseline(name: str) -> Callable[[EdgeCloud], Dispatch]:
        return lambda case: centrally(case, named[name.removesuffix("_central")].policy(case.cluster))

    dispatch = {name: baseline(name) for name in CENTRAL[1:]}
    rule = dispatch_rule(fitted, delay_s)
    return Entrants(
        {CENTRAL_RULE: lambda case: centrally(case, rule), **dispatch},
        delay_s=dict.fromkeys(CENTRAL, delay_s),
    )
