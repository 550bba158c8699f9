"""Orchestration as an environment: rollouts and learning work in it as they do anywhere else."""

from collections.abc import Callable

from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.instance import Instance
from twin.contracts import Array, Environment
from twin.environment import environment
from twin.orchestration.frame_config import FrameConfig, validate_frames
from twin.orchestration.frame_mechanics import Dispatch, frame_response
from twin.orchestration.frame_state import FrameOutcome
from twin.orchestration.frames import frame_problem, on_time_share


def frame_environment(
    case: Instance,
    dispatch: Dispatch,
    config: FrameConfig | None = None,
    *,
    begin_s: float = 0.0,
    worth: Callable[[FrameOutcome], Array] = on_time_share,
) -> Environment:
    """One day of slot mode, decided frame by frame.

    Args:
        case: The instance of slot mode.
        dispatch: The frozen policy that dispatches in between.
        config: See `FrameConfig`.
        begin_s: Time of day at which episodes begin, with an empty system and the instance's first deployment.
        worth: Of a frame.

    Returns:
        The environment, with a seat for each of the changes that a frame may bring. Episodes end with the world's day.

    Raises:
        ConfigError: the configuration does not fit the instance's slots.
    """
    public = case.public
    config = validate_frames(public.config, config or FrameConfig())
    response = frame_response(public, true_chance(case, begin_s), dispatch, config)
    return environment(frame_problem(public, config, worth), response)
