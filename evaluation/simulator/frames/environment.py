"""Orchestration as an environment: rollouts and learning work in it as they do anywhere else."""

from collections.abc import Callable

from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.instance import Instance, instance
from evaluation.simulator.world import World
from twin.contracts import Array, Environment
from twin.environment import environment
from twin.orchestration.config import SlotConfig
from twin.orchestration.frame_config import FrameConfig, validate_frames
from twin.orchestration.frame_mechanics import Dispatch, frame_response
from twin.orchestration.frame_state import FrameOutcome
from twin.orchestration.frames import frame_problem, on_time_share
from twin.placement.types import Cluster


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


def deployed_on(
    world: World, config: SlotConfig, day: float, deployed_day: float = 0.0, cluster: Cluster | None = None
) -> Instance:
    """A day of a world that begins with the deployment made for another day: what drift leaves to orchestration.

    Args:
        world: Any world, at the pace of slots (`slots.time_scaled`).
        config: See `SlotConfig`.
        day: The day that is simulated.
        deployed_day: The day that the first deployment was made for.
        cluster: Whose vocabulary to speak; the world's own by default.

    Returns:
        The instance.
    """
    case = instance(world, config, day, cluster)
    deployed = instance(world, config, deployed_day, cluster).public.replicas
    return case._replace(public=case.public._replace(replicas=deployed))
