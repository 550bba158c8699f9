"""The truth as an environment: the placement problem answered by the mechanics instead of a twin.

Twin and truth differ in the response alone, so a policy fitted to logs acts here unchanged.
"""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from evaluation.simulator.answers import CoreQueues, answer, empty_queues
from evaluation.simulator.arrivals import next_request
from evaluation.simulator.conditions import DayConditions, conditions
from evaluation.simulator.failures import is_up, on_clock
from evaluation.simulator.mechanics import NUM_SLOTS
from evaluation.simulator.modulation import Path, draw_rate
from evaluation.simulator.names import Names
from evaluation.simulator.unfolding import seated, unfolding_response, unseated
from evaluation.simulator.workloads import Workload
from evaluation.simulator.world import World
from logs_schema.errors import ConfigError
from twin.contracts import Array, Outcome, PyTree, Response, Streams
from twin.placement.responses import Answers, Arrivals, First, Next, Pending, drawn_response
from twin.placement.types import Cluster, Fate, PlacementState, Requests

MORE_SLOTS = (4, 16)
"""Times as many slots as the log suggests, tried where those do not suffice."""


def truth_arrivals(
    world: World,
    today: DayConditions,
    names: Names,
    *,
    weekday: int | Array = 0,
    begin_s: float | Array = 0.0,
) -> Arrivals:
    """The world's requests from `begin_s` (time of day, the clock's zero) to the end of its day.

    Args:
        world: For its laws.
        today: The day's numbers; may be traced.
        names: Vocabulary of the requests.
        weekday: 0 for Monday; may be traced.
        begin_s: [] or [*streams] time of day in [0, day_s).
    """

    def init(key: Array, streams: Streams) -> tuple[Path | None, First]:
        rate = draw_rate(key, world, today, streams)
        clock_s, request, more = next_requests(key, jnp.zeros(streams, jnp.float32), rate)
        return rate, First(clock_s, request, more[None], ~more)

    def following(
        key: Array, rate: Path | None, state: PlacementState, _fate: Fate, _pending: Pending
    ) -> tuple[Path | None, Next]:
        clock_s, request, more = next_requests(key, state.clock_s, rate)
        return rate, Next(clock_s, request, more[None], ~more)

    def next_requests(key: Array, clock_s: Array, rate: Path | None) -> tuple[Array, Requests, Array]:
        offset_s = jnp.full_like(clock_s, begin_s)
        clock_s, request, more = next_request(key, world, today, names, offset_s, clock_s, weekday, rate)
        return clock_s, seated(request), more

    return Arrivals(init, following)


def _drawn_answers(world: World, today: DayConditions, names: Names) -> Answers:
    def init(key: Array, streams: Streams) -> CoreQueues:
        return empty_queues(key, world, today, streams)

    def answer_seat(
        key: Array, queues: CoreQueues, state: PlacementState, node: Array, _decision_info: PyTree
    ) -> tuple[CoreQueues, Fate]:
        request = unseated(state.request)
        held, fate = answer(key, world, today, names, queues, request, state.clock_s, node[0])
        free_s = jnp.where(state.active[0][None, None], held.free_s, queues.free_s)
        queues = queues._replace(free_s=free_s)
        return queues, jax.tree.map(lambda leaf: leaf[None], fate)

    return Answers(init, answer_seat)


def depths_of(world: World, depth: int) -> tuple[int, ...]:
    """Slots per node at which the world is simulated, one after another, until every accepted request finds one.

    Args:
        world: For its own bound: in event simulations a node holds `mechanics.NUM_SLOTS` requests and refuses others.
        depth: The first: what the log suggests.
    """
    if world.unfolds:
        return (depth, NUM_SLOTS) if depth < NUM_SLOTS else (depth,)
    return tuple(depth * times for times in (1, *MORE_SLOTS))


def truth_response(
    world: World,
    cluster: Cluster,
    depth: int,
    today: DayConditions,
    names: Names,
    *,
    weekday: int | Array = 0,
    begin_s: float | Array = 0.0,
) -> Response:
    """The world's response to placements: arrivals, outcomes of offers, and availability of nodes.

    Args:
        world: A validated world.
        cluster: The vocabulary of policies.
        depth: Slots per node, as in the problem's configuration. A request that finds none is accepted and never
            settled; in event simulations a node with `mechanics.NUM_SLOTS` requests refuses further ones.
        today: The day's numbers; may be traced.
        names: The world's names in that vocabulary.
        weekday: 0 for Monday; may be traced.
        begin_s: [] or [*streams] time of day in [0, day_s) at which episodes begin, with an empty system.
    """
    today_on_clock = on_clock(world, today, begin_s)
    if world.unfolds:
        return unfolding_response(
            world, cluster, depth, today_on_clock, names, weekday=weekday, begin_s=begin_s
        )
    arrivals = truth_arrivals(world, today, names, weekday=weekday, begin_s=begin_s)
    response = drawn_response(cluster, depth, arrivals, _drawn_answers(world, today_on_clock, names))
    return _with_outages(world, today_on_clock, names, response) if world.outages else response


def _with_outages(world: World, today: DayConditions, names: Names, response: Response) -> Response:
    """The response, with the availability of nodes at the next decision as observed event."""

    def with_availability(outcome: Outcome) -> Outcome:
        up = is_up(world, today, outcome.observed_events.clock_s)[jnp.asarray(names.world_node)]
        return outcome._replace(observed_events=outcome.observed_events._replace(available=up))

    def init(key: Array, streams: Streams) -> tuple[PyTree, Outcome]:
        private, outcome = response.init(key, streams)
        return private, with_availability(outcome)

    def advance(key: Array, private: PyTree, state: PyTree, action: PyTree) -> tuple[PyTree, Outcome]:
        private, outcome = response.advance(key, private, state, action)
        return private, with_availability(outcome)

    return Response(init, advance, response.resolve_pending)


def day_of_truth(world: World, day: float, workload: Workload | None) -> DayConditions:
    """The numbers of a day, with the list of its requests if there is one."""
    today = conditions(world, day)
    return today if workload is None else today._replace(requests=workload.on(day))


def ground_truth(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """The ground truth in the facts of a simulated archive: preset or world, seed, behaviour, first_day, num_days.

    Raises:
        ConfigError: the archive was not simulated.
    """
    if "ground_truth" not in facts:
        raise ConfigError(
            "this archive has no ground truth",
            where="archive facts",
            allowed="archives written by `schedtwin simulate`",
            advice="judge policies on this log by replay instead",
        )
    return facts["ground_truth"]
