"""Slot mode as an environment: rollouts, learning and metrics work in it as they do anywhere else."""

from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.instance import instance
from evaluation.simulator.world import World
from twin.contracts import Environment
from twin.environment import environment
from twin.orchestration.config import SlotConfig
from twin.orchestration.mechanics import slot_response
from twin.orchestration.slots import slot_problem


def slot_environment(world: World, config: SlotConfig) -> Environment:
    """Day 0 of a world, dispatched by slots from midnight on, with an empty system and the first deployment.

    Returns:
        The environment, with a seat for every site. Episodes end with the world's day.

    Raises:
        ConfigError: The world or the configuration is invalid.
    """
    case = instance(world, config, 0.0)
    return environment(slot_problem(case.public), slot_response(case.public, true_chance(case)))
