"""Slot mode as an environment: rollouts, learning and metrics work in it as they do anywhere else."""

from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.instance import instance
from evaluation.simulator.world import World
from twin.contracts import Environment
from twin.environment import environment
from twin.orchestration.config import SlotConfig
from twin.orchestration.mechanics import Orchestrator, slot_response
from twin.orchestration.slots import slot_problem
from twin.placement.types import Cluster


def slot_environment(
    world: World,
    config: SlotConfig | None = None,
    *,
    day: float = 0.0,
    cluster: Cluster | None = None,
    begin_s: float = 0.0,
    time_unit_s: float = 1.0,
    orchestrator: Orchestrator | None = None,
) -> Environment:
    """One day of a world, dispatched by slots.

    Args:
        world: Any world.
        config: See `SlotConfig`.
        day: Days since day 0 of the world.
        cluster: Vocabulary of requests and nodes; the world's own by default.
        begin_s: Time of day at which episodes begin, with an empty system.
        time_unit_s: Unit of durations in features.
        orchestrator: Changes the deployment at the beginning of every frame; by default none.

    Returns:
        The environment, with a seat for every site. Episodes end with the world's day.

    Raises:
        ConfigError: the world or the configuration is invalid, or names of the world are not in the cluster.
    """
    case = instance(world, config or SlotConfig(), day, cluster)
    response = slot_response(case.public, true_chance(case, begin_s), orchestrator)
    return environment(slot_problem(case.public, time_unit_s), response)
