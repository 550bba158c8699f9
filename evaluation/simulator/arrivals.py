"""The workload: Poisson arrivals with a daily cycle, agents at sites, services by the scenario's preferences.

A day with a list of requests (`DayConditions.requests`) draws nothing: its requests are those of the list.

The gap to the next arrival solves `rate(midpoint) * gap = E` with E exponential and the midpoint taken at
half the gap that the present rate would give: exact for a constant rate, with a relative error of the order
`(gap / day_s)^2` otherwise (1e-7 at 20,000 requests a day).

`offset_s` is the time of day at which the episode's clock was zero.
"""

import jax
import jax.numpy as jnp

from evaluation.simulator.conditions import DayConditions
from evaluation.simulator.laws import SMALLEST_UNIFORM
from evaluation.simulator.modulation import Path, time_for
from evaluation.simulator.names import Names
from evaluation.simulator.request_lists import DayRequests, next_row
from evaluation.simulator.world import CALENDAR_DAY_S, World
from logs_schema.calendar import DAYS_A_WEEK
from twin.contracts import Array, Streams
from twin.conventions import drawn_together
from twin.placement.types import Requests

TWO_PI = 2.0 * jnp.pi


def draw_index(cumulative: Array, uniform: Array) -> Array:
    """Draws from a discrete law by its distribution function.

    Args:
        cumulative: [choices, *batch] or [choices, 1, ...], rising to one.
        uniform: [*batch] in [0, 1).

    Returns:
        int32 [*batch] indices.
    """
    index = jnp.sum(uniform[None] >= cumulative, axis=0, dtype=jnp.int32)
    return jnp.minimum(index, cumulative.shape[0] - 1)


def gap_s(today: DayConditions, time_of_day_s: Array, uniform: Array) -> Array:
    """Time to the next arrival, same shape as its arguments; `uniform` is in (0, 1)."""

    def rate(time_s: Array) -> Array:
        cycle = jnp.cos(TWO_PI * time_s / today.day_s)
        return jnp.asarray(today.rate_per_s) * (1.0 - today.amplitude * cycle)

    exponential = -jnp.log1p(-uniform)
    half_s = 0.5 * exponential / rate(time_of_day_s)
    return exponential / rate(time_of_day_s + half_s)


def request_at(
    world: World,
    today: DayConditions,
    names: Names,
    uniforms: Array,
    time_of_day_s: Array,
    weekday: int | Array,
) -> Requests:
    """The request that arrives at `time_of_day_s` [*streams], made of four uniform numbers [4, *streams].

    Args:
        world: For its laws.
        today: The day's numbers.
        names: Vocabulary that the request's indices refer to.
        uniforms: For agent, service, size, input.
        time_of_day_s: When it arrives.
        weekday: 0 for Monday.

    Returns:
        The request, leaves [*streams].
    """
    trailing = (1,) * time_of_day_s.ndim
    agent = draw_index(jnp.reshape(today.agent_cumulative, (-1, *trailing)), uniforms[0])
    scenario = jnp.asarray(today.agent_scenario)[agent]
    service = draw_index(services_now(world, today, agent, time_of_day_s), uniforms[1])
    declared_s = declare(world, today, agent, service, world.size.quantile(uniforms[2]))
    zero = jnp.zeros_like(time_of_day_s)
    day_fraction = time_of_day_s / CALENDAR_DAY_S
    memory_gib = jnp.asarray(today.memory_gib)[service]
    return Requests(
        site=jnp.asarray(names.site)[jnp.asarray(today.agent_site)[agent]],
        scenario=jnp.asarray(names.scenario)[scenario],
        service=jnp.asarray(names.service)[service],
        queue=jnp.zeros_like(agent),
        agent=agent,
        rule=jnp.asarray(names.rule)[service],
        demand=jnp.stack([zero + 1.0, memory_gib, zero]),
        num_nodes=zero + 1.0,
        expected_run_s=expected_of(names, service, agent, declared_s),
        run_limit_s=limit_of(names, service, declared_s),
        deadline_s=jnp.asarray(today.deadline_s)[service, scenario],
        input_mib=jnp.asarray(today.input_mib)[service] * world.input.quantile(uniforms[3]),
        day_fraction=day_fraction,
        week_fraction=(weekday + day_fraction) / DAYS_A_WEEK,
        **accepting(names, agent),
    )


def services_now(world: World, today: DayConditions, agent: Array, time_of_day_s: Array) -> Array:
    """[services, *streams] the distribution function over services of the submitting user at a time of day."""
    cumulative = jnp.asarray(today.service_cumulative)[:, jnp.asarray(today.agent_scenario)[agent]]
    if not world.tides.any:
        return cumulative
    phase = jnp.asarray(today.tide_phase)[:, jnp.asarray(today.agent_site)[agent]]
    cycles = world.tides.per_day * time_of_day_s / today.day_s
    share = jnp.diff(cumulative, axis=0, prepend=0.0)
    share = share * jnp.exp(world.tides.strength * jnp.cos(TWO_PI * (cycles[None] - phase)))
    total = jnp.cumsum(share, axis=0)
    return total / total[-1:]


def declare(world: World, today: DayConditions, agent: Array, service: Array, size: Array) -> Array:
    """[*streams] the work that requests declare, see `options.Declared`."""
    work_s = jnp.asarray(today.work_s)[service] * size
    if not world.declared.any:
        return work_s
    work_s = work_s * jnp.asarray(today.asks)[agent]
    if not world.declared.rounded_to_s:
        return work_s
    values = jnp.asarray([*world.declared.rounded_to_s, jnp.inf], jnp.float32)
    rounded = values[jnp.searchsorted(values, work_s)]
    return jnp.where(jnp.isfinite(rounded), rounded, work_s)


def expected_of(names: Names, service: Array, agent: Array, declared_s: Array) -> Array:
    """[*streams] what policies expect of requests, as of those of the log; `service` is the world's own index."""
    service = jnp.asarray(names.service)[service]
    found_s = declared_s * jnp.asarray(names.habit)[service, agent]
    if names.typical_s is None:
        return found_s
    return drawn_together(found_s, jnp.asarray(names.typical_s)[service], names.exponent)


def limit_of(names: Names, service: Array, declared_s: Array) -> Array | None:
    """[*streams] when requests are cut off as far as policies know, as of those of the log; None where they know of no
    limits. `service` is the world's own index."""
    if names.timeouts is None:
        return None
    return names.timeouts.limit_s(jnp.asarray(names.service)[service], declared_s, jnp)


def declared_run_s(names: Names, request: Requests) -> Array:
    """[*streams] the work that requests declare, whatever policies expect of them."""
    found_s = request.expected_run_s
    if names.typical_s is not None:
        typical_s = jnp.asarray(names.typical_s)[request.service]
        found_s = typical_s * (found_s / typical_s) ** (1.0 / names.exponent)
    return found_s / jnp.asarray(names.habit)[request.service, request.agent]


def needed(world: World, today: DayConditions, names: Names, request: Requests, scatter: Array) -> Array:
    """[*streams] the true work of requests, given their declared work."""
    declared, declared_s = world.declared, declared_run_s(names, request)
    if not declared.any:
        return declared_s * scatter
    work_s = jnp.asarray(today.work_s)[jnp.asarray(names.world_service)[request.service]]
    size = declared_s / (work_s * jnp.asarray(today.asks)[request.agent])
    needed_s = work_s * size**declared.informative / today.known_size * scatter
    return jnp.minimum(needed_s, declared_s) if declared.limits else needed_s


def accepting(names: Names, agent: Array) -> dict[str, Array]:
    """The known acceptance probabilities of agents [*batch], as leaves of `Requests`."""
    home, elsewhere, cloud = jnp.asarray(names.acceptance)[:, agent]
    return {"accepts_home": home, "accepts_elsewhere": elsewhere, "accepts_cloud": cloud}


def listed(
    today: DayConditions, requests: DayRequests, names: Names, row: Array, weekday: int | Array
) -> Requests:
    """The request in row `row` [*streams] of the day's list, leaves [*streams]; one core, as all requests."""
    agent, service = jnp.asarray(requests.agent)[row], jnp.asarray(requests.service)[row]
    day_fraction = jnp.asarray(requests.arrival_s)[row] / CALENDAR_DAY_S
    declared_s = jnp.asarray(requests.expected_run_s)[row]
    zero = jnp.zeros_like(day_fraction)
    return Requests(
        site=jnp.asarray(names.site)[jnp.asarray(today.agent_site)[agent]],
        scenario=jnp.asarray(names.scenario)[jnp.asarray(today.agent_scenario)[agent]],
        service=jnp.asarray(names.service)[service],
        queue=jnp.zeros_like(agent),
        agent=agent,
        rule=jnp.asarray(names.rule)[service],
        demand=jnp.stack([zero + 1.0, jnp.asarray(today.memory_gib)[service], zero]),
        num_nodes=zero + 1.0,
        expected_run_s=expected_of(names, service, agent, declared_s),
        run_limit_s=limit_of(names, service, declared_s),
        deadline_s=jnp.asarray(requests.deadline_s)[row],
        input_mib=jnp.asarray(requests.input_mib)[row],
        day_fraction=day_fraction,
        week_fraction=(weekday + day_fraction) / DAYS_A_WEEK,
        **accepting(names, agent),
    )


def uniforms(key: Array, num: int, streams: Streams) -> Array:
    """[num, *streams] uniform numbers whose quantiles are finite."""
    return jax.random.uniform(key, (num, *streams), minval=SMALLEST_UNIFORM)


def next_request(
    key: Array,
    world: World,
    today: DayConditions,
    names: Names,
    offset_s: Array,
    clock_s: Array,
    weekday: int | Array,
    rate: Path | None = None,
) -> tuple[Array, Requests, Array]:
    """The first request after `clock_s` (episode's clock, [*streams]).

    Args:
        key: PRNG key.
        world: For its laws.
        today: The day's numbers.
        names: Vocabulary that the request's indices refer to.
        offset_s: [*streams] time of day at which the episode's clock was zero.
        clock_s: [*streams] now.
        weekday: 0 for Monday.
        rate: Factor of the rate on the episode's clock, one chain (`modulation.draw_rate`).

    Returns:
        When it arrives on the episode's clock, the request, and whether it still comes today [*streams].
    """
    if today.requests is not None:
        clock_s, row = next_row(today.requests, offset_s, clock_s)
        arrival_s = jnp.asarray(today.requests.arrival_s)[row]
        return clock_s, listed(today, today.requests, names, row, weekday), arrival_s < today.day_s
    numbers = uniforms(key, 5, clock_s.shape)
    wait_s = gap_s(today, offset_s + clock_s, numbers[4])
    if rate is not None:
        wait_s = time_for(rate, clock_s[None], wait_s[None])[0]
    clock_s = clock_s + wait_s
    time_of_day_s = offset_s + clock_s
    return (
        clock_s,
        request_at(world, today, names, numbers[:4], time_of_day_s, weekday),
        time_of_day_s < today.day_s,
    )
