"""Hidden changes within a day, which are not logged: two-state Markov chains.

A chain alternates between usual and other periods, both of exponential length, and begins stationary. In other periods
it multiplies something by `Periods.factor`: the speed of a node, that of all nodes of a site, the work of the requests
that arrive meanwhile (hidden regimes), or the rate of arrivals (bursts; a Markov-modulated Poisson process). Every
replication of a day draws its own chains, once, as piecewise constant functions of the episode's clock: work done at
changing speed, and gaps between arrivals at a changing rate, are then exact. At the beginning cores may be taken by
work of the day before.

Source: W. Fischer and K. Meier-Hellstern, The Markov-modulated Poisson process (MMPP) cookbook, 1993.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.laws import SMALLEST_UNIFORM
from evaluation.simulator.options import CALENDAR_DAY_S, Periods
from evaluation.simulator.world import World
from twin.contracts import Array, Streams

_NODES, _SITES, _SIZES, _RATE, _TAKEN = range(5)
"""Folded into a key for the draws of each chain."""


class Path(NamedTuple):
    """Piecewise constant functions of the episode's clock."""

    ends_s: Array  # [periods - 1, chains, *streams], ascending
    value: Array  # [periods, chains, *streams], > 0


class HiddenChanges(NamedTuple):
    """The hidden changes of one replication of a day; None where the world has no such option."""

    speed: Path | None = None  # a chain for every node: factor of its speed
    work: Path | None = None  # one chain: factor of the work of arriving requests
    taken_s: Array | None = None  # [cores, nodes, *streams] until when work of the day before has the core
    rate: Path | None = None  # one chain of mean one over time: factor of the rate of arrivals


NOTHING_HIDDEN = HiddenChanges()


def draw_hidden(key: Array, world: World, today: DayConditions, streams: Streams) -> HiddenChanges:
    """Draws the changes of nodes and work in one replication of a day, unless they are given; nodes in the order of
    `today`."""
    if today.hidden is not None:
        return _in_all(streams, today.hidden)
    speed = work = taken_s = None
    if world.slow_nodes.any:
        speed = _draw(jax.random.fold_in(key, _NODES), world.slow_nodes, len(world.nodes), streams)
    if world.slow_sites.any:
        sites = _draw(jax.random.fold_in(key, _SITES), world.slow_sites, len(world.all_sites), streams)
        node_site = jnp.asarray(today.node_site)
        of_nodes = Path(sites.ends_s[:, node_site], sites.value[:, node_site])
        speed = of_nodes if speed is None else product(speed, of_nodes)
    if world.regimes.any:
        work = _draw(jax.random.fold_in(key, _SIZES), world.regimes, 1, streams)
        work = work._replace(value=work.value / world.regimes.mean)
    if world.taken_cores > 0.0:
        exists = jnp.asarray(today.core_exists)
        shape = (2, *exists.shape, *streams)
        numbers = jax.random.uniform(jax.random.fold_in(key, _TAKEN), shape, minval=SMALLEST_UNIFORM)
        taken_s = jnp.where(numbers[0] < world.taken_cores, -jnp.log(numbers[1]) * world.taken_mean_s, 0.0)
    return HiddenChanges(speed, work, taken_s)


def _in_all(streams: Streams, hidden: HiddenChanges) -> HiddenChanges:
    """The same changes, leaves [...], in every stream: leaves [..., *streams]."""

    def of(leaf: Array) -> Array:
        return jnp.broadcast_to(leaf.reshape(leaf.shape + (1,) * len(streams)), leaf.shape + streams)

    alike: HiddenChanges = jax.tree.map(of, hidden)
    return alike


def draw_rate(key: Array, world: World, today: DayConditions, streams: Streams) -> Path | None:
    """Draws the factor of the rate of arrivals in one replication of a day, unless it is given; None where there are no
    bursts."""
    if not world.bursts.any:
        return None
    if today.hidden is not None:
        return _in_all(streams, today.hidden).rate
    path = _draw(jax.random.fold_in(key, _RATE), world.bursts, 1, streams)
    return path._replace(value=path.value / world.bursts.mean)


def _draw(key: Array, periods: Periods, num_chains: int, streams: Streams) -> Path:
    """Chains from the episode's beginning until long after a day, but for one replication in a million."""
    key_first, key_lengths = jax.random.split(key)
    mean_changes = 2.0 * CALENDAR_DAY_S / (periods.usual_s + periods.other_s)
    num_changes = math.ceil(mean_changes + 6.0 * math.sqrt(mean_changes)) + 2
    shape = (num_chains, *streams)
    begins_other = jax.random.uniform(key_first, shape) < periods.share
    number = jnp.arange(num_changes + 1).reshape((-1,) + (1,) * len(shape))
    other = (number % 2 == 1) ^ begins_other[None]
    uniform = jax.random.uniform(key_lengths, (num_changes, *shape), minval=SMALLEST_UNIFORM)
    mean_s = jnp.where(other[:-1], periods.other_s, periods.usual_s)
    return Path(jnp.cumsum(-jnp.log(uniform) * mean_s, axis=0), jnp.where(other, periods.factor, 1.0))


def product(one: Path, two: Path) -> Path:
    """The product of the functions of two paths, chain by chain."""
    ends_s = jnp.concatenate([one.ends_s, two.ends_s])
    steps = jnp.concatenate([jnp.diff(jnp.log(path.value), axis=0) for path in (one, two)])
    order = jnp.argsort(ends_s, axis=0)
    first = jnp.log(one.value[:1]) + jnp.log(two.value[:1])
    later = first + jnp.cumsum(jnp.take_along_axis(steps, order, axis=0), axis=0)
    return Path(jnp.take_along_axis(ends_s, order, axis=0), jnp.exp(jnp.concatenate([first, later])))


def of_chain(path: Path, chain: Array) -> Path:
    """The path of one chain a stream, `chain` int32 [*streams]: leaves [periods, *streams]."""
    index = chain[None, None]
    return Path(*(jnp.take_along_axis(leaf, index, axis=1)[:, 0] for leaf in path))


def value_at(path: Path, time_s: Array) -> Array:
    """The values at `time_s`, of the shape of one period."""
    period = jnp.sum(path.ends_s <= time_s[None], axis=0, dtype=jnp.int32)
    return jnp.take_along_axis(path.value, period[None], axis=0)[0]


def next_change_s(path: Path, time_s: Array) -> Array:
    """When the value changes next after `time_s`, of the shape of one period; inf: never."""
    return jnp.min(jnp.where(path.ends_s > time_s[None], path.ends_s, jnp.inf), axis=0)


def time_for(path: Path, begin_s: Array, amount: Array) -> Array:
    """How long it takes from `begin_s` on until the integral of the values is `amount`; shapes of one period."""
    ends_s = jnp.maximum(path.ends_s - begin_s[None], 0.0)
    lengths_s = jnp.diff(ends_s, axis=0, prepend=jnp.zeros_like(ends_s[:1]))
    done = path.value[:-1] * lengths_s
    before = jnp.concatenate([jnp.zeros_like(done[:1]), jnp.cumsum(done, axis=0)])
    most = jnp.concatenate([done, jnp.full_like(done[:1], jnp.inf)])
    return jnp.sum(jnp.clip(amount[None] - before, 0.0, most) / path.value, axis=0)
