"""Orchestration as an environment: rollouts and learning work in it as they do anywhere else."""

from collections.abc import Callable

from evaluation.simulator.frames.config import FrameConfig, validate_frames
from evaluation.simulator.frames.problem import frame_problem, on_time_share
from evaluation.simulator.frames.response import Dispatch, frame_response
from evaluation.simulator.frames.state import FrameOutcome
from evaluation.simulator.slots.config import SlotConfig
from evaluation.simulator.slots.instance import Instance, instance
from evaluation.simulator.world import World
from twin.contracts import Array, Environment
from twin.environment import environment


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
    config = validate_frames(case.config, config or FrameConfig())
    return environment(frame_problem(case, config, worth), frame_response(case, dispatch, config, begin_s))


def deployed_on(world: World, config: SlotConfig, day: float, deployed_day: float = 0.0) -> Instance:
    """A day of a world that begins with the deployment made for another day: what drift leaves to orchestration.

    Args:
        world: Any world, at the pace of slots (`slots.hurried`).
        config: See `SlotConfig`.
        day: The day that is lived.
        deployed_day: The day that the first deployment was made for.

    Returns:
        The instance.
    """
    return instance(world, config, day)._replace(replicas=instance(world, config, deployed_day).replicas)
