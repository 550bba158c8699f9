"""Worlds small enough for theory: one node, no links, a constant rate of arrivals."""

import jax
import numpy as np

from evaluation.simulator.behaviour import Behaviour, behaviour
from evaluation.simulator.conditions import DayConditions, conditions
from evaluation.simulator.history import CHUNK_STEPS, History, play_streams
from evaluation.simulator.laws import Law, constant
from evaluation.simulator.mechanics import mechanics_of
from evaluation.simulator.world import CALENDAR_DAY_S, World, WorldNode, WorldService, validate


def queue(
    num_cores: int, load: float, run: Law, *, requests_per_day: float = 8_640.0, speed: float = 1.0
) -> World:
    """A single queue whose load is `load`; its mean run time follows from that."""
    run_s = load * num_cores * CALENDAR_DAY_S / requests_per_day
    service = WorldService("only", work_s=run_s * speed, input_mib=0.0, memory_gib=0.0, deadline_s=run_s)
    node = WorldNode("node", "here", "edge", num_cores, 1.0, speed)
    return validate(
        World(
            "queue",
            ("here",),
            (node,),
            (service,),
            requests_per_day=requests_per_day,
            run=run,
            input=constant(),
        )
    )


def same_day(world: World, day: float, num_streams: int) -> DayConditions:
    """The conditions of one day, once for every stream."""
    today = conditions(world, day)
    return jax.tree.map(lambda leaf: np.stack([leaf] * num_streams), today)


def simulated(
    world: World,
    name: str | Behaviour,
    *,
    day: float = 0.0,
    num_streams: int = 2,
    seed: int = 0,
    mechanics=mechanics_of,
    chunk_steps: int = CHUNK_STEPS,
) -> History:
    """The same day simulated several times over, as independent streams."""
    rule = behaviour(name) if isinstance(name, str) else name
    keys = jax.random.split(jax.random.key(seed), num_streams)
    today = same_day(world, day, num_streams)
    return play_streams(world, rule, today, keys, mechanics=mechanics, chunk_steps=chunk_steps)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean of independent values and its standard error."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
