"""What is by chance in slot mode, drawn by the laws of a world: the truth's half of the mechanics.

The numbers of a slot are one array of uniforms, in the order of `draw`, so that any other implementation of the rules
can be fed the same.
"""

from typing import Any

import jax.numpy as jnp

from evaluation.simulator.arrivals import accepting, gap_s, request_at, uniforms
from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.failures import is_up, on_clock
from evaluation.simulator.slots.instance import Instance
from twin.contracts import Array, Streams
from twin.orchestration.chance import Chance, SlotAnswer, since_midnight
from twin.placement.features import one_hot
from twin.placement.types import Requests

ACCEPTS, WAY_THERE, RUN, WAY_BACK = range(4)
NUM_DECISION_UNIFORMS = 4
"""The first rows of what is drawn for a slot: for the request that a site sends."""
UNIFORMS_PER_ARRIVAL = 5
"""Agent, service, size, input, and the gap to the next arrival."""


def draw(case: Instance, key: Array, streams: Streams) -> Array:
    """[4 + 5 * arrivals_per_slot, sites, *streams] uniform numbers in (0, 1): all the chance of one slot.

    The agent's answer, the way there, the run and the way back of the request sent; then agent, service, size, input
    and gap of every arrival.
    """
    number = NUM_DECISION_UNIFORMS + UNIFORMS_PER_ARRIVAL * case.public.config.arrivals_per_slot
    return uniforms(key, number, (case.public.num_seats, *streams))


def true_chance(case: Instance, begin_s: float | Array = 0.0) -> Chance:
    """The chance of a world's day.

    Args:
        case: The day.
        begin_s: Time of day at which episodes begin, one or [*streams].

    Returns:
        See `Chance`. Arrivals form a Poisson process at every site, exactly.
    """
    failing = on_clock(case.world, case.by_site, begin_s)

    def first_s(key: Array, streams: Streams) -> Array:
        uniform = uniforms(key, 1, (case.public.num_seats, *streams))[0]
        return gap_s(
            _site_days(case, len(streams)), since_midnight(begin_s, jnp.zeros_like(uniform)), uniform
        )

    def arrival(numbers: Array, one: int, arrival_s: Array) -> tuple[Requests, Array]:
        first = NUM_DECISION_UNIFORMS + one * UNIFORMS_PER_ARRIVAL
        drawn = numbers[first : first + UNIFORMS_PER_ARRIVAL]
        time_of_day_s = since_midnight(begin_s, arrival_s)
        days = _site_days(case, arrival_s.ndim - 1)
        return _ask(case, drawn[:4], time_of_day_s), gap_s(days, time_of_day_s, drawn[4])

    def answer(numbers: Array, request: Requests, node: Array) -> SlotAnswer:
        link = jnp.asarray(case.link)[request.site, node]
        accepts = jnp.asarray(case.accepts)[link, jnp.maximum(request.agent, 0)]
        output_mib = jnp.asarray(case.public.output_mib)[request.service]
        run_s = request.expected_run_s * case.world.run.quantile(numbers[RUN])
        return SlotAnswer(
            accepted=numbers[ACCEPTS] < accepts,
            way_there_s=_way_s(case, link, request.input_mib, numbers[WAY_THERE]),
            run_s=run_s * jnp.asarray(case.run_factor)[request.service, node],
            way_back_s=jnp.where(output_mib > 0.0, _way_s(case, link, output_mib, numbers[WAY_BACK]), 0.0),
        )

    def available(_numbers: Array | None, _before: Array | None, clock_s: Array) -> Array:
        return is_up(case.world, failing, clock_s)[case.names.world_node]

    def identity(agent: Array) -> dict[str, Any]:
        own = jnp.asarray(case.agent)[agent]
        return {"agent": own, **accepting(case.names, own)}

    day_s = float(case.by_site.day_s)
    return Chance(
        begin_s, day_s, case.weekday, lambda key, streams: draw(case, key, streams), first_s, arrival, answer,
        available, bool(case.world.outages), identity,
    )  # fmt: skip


def _site_days(case: Instance, num_streams: int) -> DayConditions:
    """The day with the rate of arrivals of each site [sites, 1...]."""
    rate = case.by_site.rate_per_s * case.share
    return case.by_site._replace(rate_per_s=rate.reshape((-1,) + (1,) * num_streams))


def _ask(case: Instance, uniforms: Array, time_of_day_s: Array) -> Requests:
    """The requests of the sites' agents; leaves [sites, *streams]."""
    low, share = (value.reshape((-1,) + (1,) * (uniforms.ndim - 2)) for value in (case.low, case.share))
    whose = jnp.concatenate([(low + share * uniforms[0])[None], uniforms[1:]])
    return request_at(case.world, case.by_site, case.names, whose, time_of_day_s, case.weekday)


def _way_s(case: Instance, link: Array, mib: Array, uniform: Array) -> Array:
    """Latency times its noise plus the transfer, by kind of link; any shape."""
    kinds, today = (case.world.local, case.world.cross_site, case.world.wan), case.by_site
    noise = jnp.stack([kind.noise.quantile(uniform) for kind in kinds])
    drawn = jnp.sum(jnp.where(one_hot(link, len(kinds)), noise, 0.0), axis=0)
    return drawn * jnp.asarray(today.latency_s)[link] + mib * jnp.asarray(today.s_per_mib)[link]
