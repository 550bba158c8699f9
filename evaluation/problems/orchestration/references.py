"""Orchestrators that know the truth: a ceiling for what is learned.

They plan with the world's own rates and runs (`slots.forecast`), and try proposals out in the world's own laws, with
other luck; what they cannot see is the luck of the day itself.
"""

from dataclasses import replace

from evaluation.baselines.greedy_scaling import GREEDY_SCALING
from evaluation.baselines.horizontal_scaling import HPA_REQUESTS
from evaluation.baselines.random_scaling import RANDOM_SCALING
from evaluation.baselines.static_deployment import STATIC_DEPLOYMENT
from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.forecast import true_forecast
from evaluation.simulator.slots.instance import Instance
from offline_rl.rules.orchestration.lookahead import ModelOf, lookahead
from offline_rl.rules.orchestration.planned import PlannedConfig, planned
from twin.orchestration.chance import Chance
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.forecast import DayForecast
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch
from twin.orchestration.frame_state import FrameState
from twin.orchestration.orchestrator import Orchestrate

PLANNED, LOOKAHEAD = "planned", "lookahead"
REFERENCES = (PLANNED, LOOKAHEAD)
"""Names of what plans ahead: in a bench with the truth's tables, elsewhere with a log's."""
PLANNED_TUNED = "planned_tuned"
"""The planned deployment, its numbers tuned in a twin."""
PLANS = (
    PlannedConfig(),
    PlannedConfig(lead_frames=3.0),
    PlannedConfig(target=0.6, safety=1.0),
    PlannedConfig(target=1.0, safety=0.3),
)
"""What the lookahead chooses among; the first is the planned deployment."""


def proposing(
    case: EdgeCloud, forecast: DayForecast, frames: FrameConfig, follows: bool = True
) -> list[Orchestrate]:
    """Who proposes changes to the lookahead; the planned deployment is the base rule."""
    baselines = (STATIC_DEPLOYMENT, HPA_REQUESTS, GREEDY_SCALING, RANDOM_SCALING)
    plans = [planned(case, forecast, frames, replace(plan, follows=follows)) for plan in PLANS]
    return [*plans, *(one.rule(case, frames) for one in baselines)]


def planning(
    name: str,
    case: EdgeCloud,
    forecast: DayForecast,
    model_of: ModelOf,
    dispatch: Dispatch,
    frames: FrameConfig,
    follows: bool = True,
) -> Orchestrate:
    """The orchestrator called `name` with a forecast and a model, of the truth or of a twin.

    The forecast of another day has to be corrected by what is seen (`follows`), that of the truth of the day does not.
    """
    if name == PLANNED:
        return planned(case, forecast, frames, PlannedConfig(follows=follows))
    return lookahead(case, model_of, dispatch, frames, proposing(case, forecast, frames, follows))


def reference(name: str, case: Instance, dispatch: Dispatch, frames: FrameConfig) -> Orchestrate:
    """The orchestrator called `name`, which plans with the truth of the day."""

    def model_of(state: FrameState) -> Chance:
        return true_chance(case, state.clock_s[..., None, None])

    return planning(name, case.public, true_forecast(case), model_of, dispatch, frames, follows=False)
