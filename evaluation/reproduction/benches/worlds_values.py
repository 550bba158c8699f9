"""Values of policies in a twin and in the simulated world, on the same logged day and in closed loop.

Both systems get the requests of the log, from an empty midnight to the day's last request, and the hidden changes of
that day (slow periods, regimes: no decision moves them); only the outcomes differ. Where agents leave, pause or await
their answers, the workload depends on the world, and requests that it draws, in the bursts of the log, take the place
of the log's. Both systems hold as many requests in flight a node as the twin does; what finds no slot counts as late in
both. All policies are simulated together: each has an equal share of the streams, so two programs serve them all.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.judges.players import Player, PlayerInput
from evaluation.judges.truth import age_of
from evaluation.simulator.conditions import DayConditions, conditions, longest_day
from evaluation.simulator.history import with_hidden
from evaluation.simulator.names import names_in
from evaluation.simulator.pool import day_requests_of, read_pool
from evaluation.simulator.request_lists import DayRequests, padded
from evaluation.simulator.truth import ground_truth, truth_response
from evaluation.simulator.world import CALENDAR_DAY_S, World
from logs_schema import Archive
from twin.contracts import Array, Problem, PyTree, Response, Trajectory
from twin.environment import environment
from twin.placement.awaited_arrivals import arrivals_of
from twin.placement.bookkeeping import placement
from twin.placement.learned import learned_answers
from twin.placement.log_windows import encode_days
from twin.placement.model import PlacementTwin
from twin.placement.responses import drawn_response
from twin.placement.types import COMPLETED, Leaf
from twin.placement.windows import Windows, pad_windows, select
from twin.rollout import unroll


class Contestant(NamedTuple):
    """A policy that is played, and the parameters it needs (None where it needs none)."""

    play: Player
    params: PyTree = None


class Values(NamedTuple):
    """The values of every policy in every replication of every day; leaves [policies, replications]."""

    on_time: Leaf  # share of requests accepted and finished within their deadline
    response_s: Leaf  # mean, of those that completed
    out_of_support: Leaf  # share of decisions to longer queues than in the twin's data; 0 in the truth

    @staticmethod
    def joined(parts: Sequence["Values"]) -> "Values":
        """The replications of several days side by side."""
        return Values(*(np.concatenate(leaves, axis=1) for leaves in zip(*parts, strict=True)))


def day_requests(archive: Archive, world: World, days: Sequence[dt.date]) -> list[DayRequests] | None:
    """The requests of some days of a log that `world` wrote, padded equally; None where they depend on the world."""
    if world.reactions.move_arrivals:
        return None
    present = sorted(set(days) & set(archive.days("requests")))
    pool = read_pool(archive, world, present)
    first, day = present[0], np.floor(pool.clock_s / CALENDAR_DAY_S).astype(int)
    found = []
    for one in days:
        rows = np.flatnonzero(day == (one - first).days)
        random = np.random.default_rng(0)  # for what a log hides, which this one does not
        found.append(day_requests_of(pool, rows, pool.clock_s[rows] % CALENDAR_DAY_S, world, random))
    longest = max(len(one.arrival_s) for one in found) + 1
    return [padded(one, longest, world.day_s) for one in found]


def true_values(
    key: Array,
    archive: Archive,
    world: World,
    twin: PlacementTwin,
    days: Sequence[dt.date],
    contestants: Sequence[Contestant],
    num_replications: int,
) -> Values:
    """The policies' values in the world itself, every day simulated `num_replications` times by each."""
    encoding, first = twin.encoding, min(archive.days("requests"))
    names = names_in(world, encoding.cluster, encoding.run_habits)
    requests = day_requests(archive, world, days)
    num_steps = longest_day(world) if requests is None else len(requests[0].arrival_s) - 1

    def run(key: Array, params: Sequence[PyTree], today: DayConditions, weekday: Array) -> Values:
        response = truth_response(
            world, encoding.cluster, encoding.problem.depth, today, names, weekday=weekday
        )
        problem = placement(encoding.cluster, encoding.problem, age_s=age_of(today, encoding, first))
        episodes = _play(key, problem, response, contestants, params, 1, num_replications, num_steps)
        return _values(episodes, len(contestants), 1, None)

    program, found, seed = jax.jit(run), [], ground_truth(archive.facts)["seed"]
    for place, day in enumerate(days):
        today = with_hidden(world, conditions(world, (day - first).days), seed)
        if requests is not None:
            today = today._replace(requests=requests[place])
        one = jax.random.fold_in(key, place)
        found.append(program(one, [each.params for each in contestants], today, jnp.int32(day.weekday())))
    return Values.joined([Values(*map(np.asarray, one)) for one in found])


def in_model_values(
    key: Array,
    archive: Archive,
    twin: PlacementTwin,
    days: Sequence[dt.date],
    contestants: Sequence[Contestant],
    num_replications: int,
) -> Values:
    """The policies' values in a twin; `num_replications` is a multiple of its members."""
    encoding, members = twin.encoding, jax.tree.leaves(twin.model.parameters)[0].shape[0]
    longest = max(archive.num_rows("requests", day) for day in days)
    problem = placement(encoding.cluster, encoding.problem)

    def run(key: Array, params: Sequence[PyTree], windows: Windows, model: PyTree) -> Values:
        answers = learned_answers(encoding, twin.config, model)
        response = drawn_response(encoding.cluster, encoding.problem.depth, arrivals_of(windows), answers)
        episodes = _play(key, problem, response, contestants, params, members, num_replications, longest)
        return _values(episodes, len(contestants), members, jnp.asarray(model.support_limit_s))

    program, found = jax.jit(run), []
    for place, day in enumerate(days):
        window = pad_windows(encode_days(archive, encoding, [day], num_steps=longest, most=None), longest, 1)
        windows = jax.tree.map(
            jnp.asarray, select(window, np.zeros(len(contestants) * num_replications, int))
        )
        one = jax.random.fold_in(key, place)
        found.append(program(one, [each.params for each in contestants], windows, twin.model))
    return Values.joined([Values(*map(np.asarray, one)) for one in found])


def side_by_side(contestants: Sequence[Contestant], num_members: int) -> Callable[..., PyTree]:
    """One policy in which each contestant decides in its share of the streams: (params, key, seen, legal) -> action.

    Streams lie member by member, within a member contestant by contestant.
    """
    num = len(contestants)

    def share(tree: PyTree, index: int) -> PyTree:
        def of(leaf: Array) -> Array:
            split = leaf.reshape(*leaf.shape[:-1], num_members, num, -1)
            return split[..., index, :].reshape(*leaf.shape[:-1], -1)

        return jax.tree.map(of, tree)

    def decide(params: Sequence[PyTree], key: Array, seen: PlayerInput, legal: Array) -> Array:
        parts = []
        for index, (one, own) in enumerate(zip(contestants, params, strict=True)):
            mine = PlayerInput(share(seen.observation, index), None, None)
            action = one.play(own, jax.random.fold_in(key, index), mine, share(legal, index))
            parts.append(action.reshape(*action.shape[:-1], num_members, -1))
        return jnp.stack(parts, axis=-2).reshape(*legal.shape[1:])

    return decide


def _play(
    key: Array,
    problem: Problem,
    response: Response,
    contestants: Sequence[Contestant],
    params: Sequence[PyTree],
    num_members: int,
    num_replications: int,
    num_steps: int,
) -> Trajectory:
    both = side_by_side(contestants, num_members)

    def decide(key: Array, observation: PyTree, legal: Array, _: None) -> Array:
        return both(params, key, PlayerInput(observation, None, None), legal)

    slim = problem._replace(observe_global=lambda _: jnp.zeros(()))
    return unroll(
        key, environment(slim, response), decide, None, num_steps, (len(contestants) * num_replications,)
    )


def _values(episodes: Trajectory, num: int, num_members: int, support_limit_s: Array | None) -> Values:
    outcome, active = episodes.outcome, episodes.active
    count = jnp.maximum(jnp.sum(active, axis=(0, 1)), 1)
    completed = active & episodes.settled & (outcome.status == COMPLETED)
    response_s = jnp.where(completed, outcome.finish_s - episodes.decision_info.arrival_s, 0.0)
    deadline = outcome.finish_s - episodes.decision_info.arrival_s <= episodes.decision_info.deadline_s
    far = (
        jnp.zeros_like(active)
        if support_limit_s is None
        else episodes.response_aux.availability_s > support_limit_s[episodes.action]
    )

    def of(leaf: Array, over: Array) -> Array:
        sums = jnp.sum(leaf, axis=(0, 1)) / jnp.maximum(over, 1)
        return jnp.moveaxis(sums.reshape(num_members, num, -1), 1, 0).reshape(num, -1)

    return Values(
        of(completed & deadline, count),
        of(response_s, jnp.sum(completed, axis=(0, 1))),
        of(far & active, count),
    )


def as_table(values: Values, names: Sequence[str]) -> Mapping[str, Mapping[str, list[float]]]:
    """Plain values: name of a policy -> name of a value -> one a replication."""
    return {
        name: {field: np.asarray(getattr(values, field)[row], float).tolist() for field in Values._fields}
        for row, name in enumerate(names)
    }
