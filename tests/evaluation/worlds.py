"""Worlds small enough for theory: one node, no links, a constant rate of arrivals."""

from collections.abc import Callable, Collection, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.simulator.behaviour import Behaviour, behaviour
from evaluation.simulator.conditions import DayConditions, conditions
from evaluation.simulator.history import CHUNK_STEPS, History, play_streams
from evaluation.simulator.laws import Law, constant
from evaluation.simulator.mechanics import mechanics_of
from evaluation.simulator.names import names_in
from evaluation.simulator.truth import day_of_truth, truth_response
from evaluation.simulator.workloads import Workload
from evaluation.simulator.world import CALENDAR_DAY_S, World, WorldNode, WorldService, validate
from logs_schema.errors import ConfigError
from twin.contracts import Array, Environment, Policy, PyTree
from twin.environment import environment
from twin.placement.bookkeeping import PlacementConfig, placement
from twin.placement.features import NODE_FEATURES
from twin.placement.types import Cluster
from twin.rollout import rollout

NAMES = [feature.name for feature in NODE_FEATURES]


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


def truth_of(
    world: World,
    cluster: Cluster,
    config: PlacementConfig,
    day: float,
    *,
    begin_s: float = 0.0,
    workload: Workload | None = None,
) -> Environment:
    """The environment of one day of `world`, a Monday, for one seat, from `begin_s` on with an empty system."""
    today, names = day_of_truth(world, day, workload), names_in(world, cluster)
    response = truth_response(world, cluster, config.depth, today, names, begin_s=begin_s)
    return environment(placement(cluster, config), response)


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


def uniform_policy(key: Array, _observation: PyTree, legal: Array) -> Array:
    """Every legal node alike."""
    score = jnp.where(legal, jax.random.uniform(key, legal.shape), -1.0)
    return jnp.argmax(score, axis=0).astype(jnp.int32)


def held_less_in_system(
    world: World, truth: Environment, policy: Policy, *, num_steps: int = 200, num_streams: int = 32
) -> tuple[float, float, float]:
    """The number held, summed over arrivals and divided by their rate, less the time in the system, which is zero by
    Little's law; on the way, that what the books hold is what the fates say.

    Returns:
        The difference, its standard error, and the mean of the time in the system.
    """

    def run(key: Array) -> tuple[Array, ...]:
        played = rollout(key, truth, policy, num_steps, (num_streams,))
        places = jnp.array([NAMES.index("num_running"), NAMES.index("num_waiting")])
        held = jnp.expm1(played.global_observation.node[:num_steps, :, :, 0][:, places]).sum(axis=(1, 2))
        arrival_s, finish_s = played.decision_info.arrival_s[:, 0], played.outcome.finish_s[:, 0]
        return held, arrival_s, finish_s, played.settled[:, 0]

    held, arrival_s, finish_s, settled = (np.asarray(leaf) for leaf in jax.jit(run)(jax.random.key(0)))
    assert settled.all()
    ends_s = np.where(np.isfinite(finish_s), finish_s, -np.inf)  # a refused offer is never held
    before = np.tril(np.ones((num_steps, num_steps), bool), -1)[:, :, None]
    np.testing.assert_allclose(held, np.sum(before & (ends_s[None] > arrival_s[:, None]), axis=1), atol=0.01)
    today = conditions(world, 0)
    cycle = np.cos(2.0 * np.pi * arrival_s / today.day_s)
    seen_s = np.sum(held / (today.rate_per_s * (1.0 - today.amplitude * cycle)), axis=0)
    in_system_s = np.sum(np.maximum(np.minimum(ends_s, arrival_s[-1]) - arrival_s, 0.0), axis=0)
    return *interval(seen_s - in_system_s), float(in_system_s.mean())


def ends_by_hand(
    arrival_s: np.ndarray,
    run_s: np.ndarray,
    most: int,
    pace_of: Callable[[Collection[int]], Mapping[int, float]],
    killed_after_s: np.ndarray | None = None,
) -> np.ndarray:
    """When requests are done, or killed so long after their start, of which at most `most` are in service, first come
    first served, in small pieces of remaining work; `pace_of`: those in service -> how much of each is done in a
    second."""
    left, killed_s, finish_s, now_s, line = {}, {}, np.zeros(len(arrival_s)), 0.0, []
    most_s = np.full(len(arrival_s), np.inf) if killed_after_s is None else killed_after_s

    def end_s(job):
        return min(now_s + left[job] / pace[job], killed_s[job])

    upcoming = list(range(len(arrival_s)))
    while upcoming or left:
        pace = pace_of(left)
        done = min(left, key=end_s) if left else None
        done_s = end_s(done) if left else np.inf
        next_s = arrival_s[upcoming[0]] if upcoming else np.inf
        passed_s = min(done_s, next_s) - now_s
        left = {job: work - passed_s * pace[job] for job, work in left.items()}
        now_s += passed_s
        if next_s <= done_s:
            line.append(upcoming.pop(0))
        else:
            finish_s[done] = now_s
            del left[done]
        while line and len(left) < most:
            job = line.pop(0)
            left[job], killed_s[job] = run_s[job], now_s + most_s[job]
    return finish_s


def agree_on_fates(drawn: History, played: History, atol: float) -> np.ndarray:
    """Makes sure that two implementations of a world agree, request by request; which rows are requests."""
    live = drawn.live
    np.testing.assert_array_equal(live, played.live)
    np.testing.assert_array_equal(drawn.fate.status[live], played.fate.status[live])
    for name in ("start_s", "finish_s"):
        one, two = (np.asarray(getattr(rows.fate, name))[live] for rows in (drawn, played))
        np.testing.assert_allclose(one, two, atol=atol)
    return live


def refused_by_name(world: World, offender: str) -> None:
    """Makes sure that a world is refused, with what is wrong and what is allowed."""
    with pytest.raises(ConfigError) as refusal:
        validate(world)
    assert offender in refusal.value.what
    assert refusal.value.allowed
