"""Generated arrivals of the placement problem: generated times, and requests drawn from generated agents.

Agents are generated beforehand, for every part of the day a pool, each agent as often as it makes requests
(`ACTIVITY`), so that a draw from the pool follows the law of the requests while agents were learned one by one. A
rollout then costs one draw and one look-up a step.
"""

import datetime as dt
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from logs_schema import Archive
from logs_schema.columns import arrow_schema
from logs_schema.tables import REQUESTS, SCHEMA_VERSION
from twin.contracts import Array, PyTree, Streams
from twin.placement.encode import encode_rows
from twin.placement.encoding import DAYS_A_WEEK, Encoding
from twin.placement.responses import Arrivals, First, Next
from twin.placement.types import Fate, PlacementState, Requests
from twin.placement.windows import Windows, choose_windows, take
from twin.population.agents import (
    ACTIVITY,
    ANY_NODE,
    CANDIDATES,
    SEPARATOR,
    UNKNOWN,
    AgentConditions,
    AgentTable,
)
from twin.population.arrival_times import (
    DAY_S,
    HOURS_A_DAY,
    MONDAY_S,
    WEEK_S,
    ArrivalModel,
    Flow,
    counts_of_hours,
    fit_arrivals,
    flow_at_any_time,
    flow_at_arrival,
    next_arrival,
    rates,
    rounded,
)
from twin.population.population import PopulationModel, sample_agents

NUM_PARTS = 12
MOST_ARRIVALS = 500_000
"""Of more, gaps are learned from some: what learning takes does not grow with the log."""
OVERSAMPLING = 8
"""Agents generated for every place in a pool, before each is taken as often as it makes requests."""


class RequestPool(NamedTuple):
    """Requests to draw from, as many rows for every part of the day; leaves [..., parts * rows]."""

    request: Requests
    num_rows: int


class _GeneratorState(NamedTuple):
    flow: Flow
    offset_s: Array  # [*streams] time of the week at which the clock was zero


def read_arrivals(archive: Archive, days: Sequence[dt.date]) -> ArrivalModel:
    """Learns arrival times from days of an archive, reading one column, a batch in memory at a time.

    Rates come from all days. Of more than `MOST_ARRIVALS` arrivals gaps come from evenly many of the days, and of a day
    that is larger from its beginning.
    """
    sizes = np.array([archive.num_rows("requests", day) for day in sorted(days)])
    stride = max(1, -(-int(sizes.sum()) // MOST_ARRIVALS))
    looked_at = sorted(days)[::stride]
    if stride == 1:
        return fit_arrivals(_arrivals(archive, looked_at), _since_1970(looked_at))
    counts = sum(map(counts_of_hours, _batches(archive, days)), np.zeros((DAYS_A_WEEK, HOURS_A_DAY)))
    rate_per_s = rates(counts, np.array(_since_1970(days)))
    room = MOST_ARRIVALS // len(looked_at)
    some = np.concatenate([_arrivals(archive, [day], room) for day in looked_at])
    return fit_arrivals(some, _since_1970(looked_at), rate_per_s)


def _arrivals(archive: Archive, days: Sequence[dt.date], most: int | None = None) -> np.ndarray:
    """[arrivals] seconds since 1970, sorted; of more than `most` the first ones."""
    found: list[np.ndarray] = []
    for batch in _batches(archive, days):
        found.append(batch)
        if most is not None and sum(map(len, found)) >= most:
            break
    return np.sort(np.concatenate([*found, np.zeros(0)]))[:most]


def _batches(archive: Archive, days: Sequence[dt.date]) -> Iterator[np.ndarray]:
    for batch in archive.scan("requests", days=days, columns=["arrival"]):
        yield batch.column(0).cast(pa.int64()).to_numpy() / 1e6


def _since_1970(days: Sequence[dt.date]) -> list[int]:
    return [(day - dt.date(1970, 1, 1)).days for day in days]


def request_pool(
    key: Array, model: PopulationModel, encoding: Encoding, *, num_rows: int = 256
) -> RequestPool:
    """Generates agents for every part of the day and encodes their requests.

    Args:
        key: PRNG key.
        model: The population.
        encoding: Of the placement problem; values it does not know mean "unknown" there, as in logs.
        num_rows: Places of every part's pool.
    """
    key_draw, key_agents = jax.random.split(key)
    random = np.random.default_rng(np.asarray(jax.random.key_data(key_draw)).tolist())
    part = np.repeat(np.arange(NUM_PARTS), OVERSAMPLING * num_rows)
    agents = sample_agents(key_agents, model, conditions_of_parts(random, model.conditions, part))
    kept = np.concatenate(
        [_as_often(random, agents, part == number, num_rows) for number in range(NUM_PARTS)]
    )
    table = as_requests(agents.take(kept))
    request = encode_rows(table, encoding, np.inf).request
    return RequestPool(request, num_rows)


def conditions_of_parts(
    random: np.random.Generator, known: AgentConditions, part: np.ndarray
) -> AgentConditions:
    """Conditions of agents in given parts of the day [rows], drawn among known ones of the same part.

    In a part that nothing is known of scenarios are drawn among all, and the time is the middle of the part.
    """
    part_of_known = np.minimum((known.day_fraction * NUM_PARTS).astype(int), NUM_PARTS - 1)
    rows = np.zeros(len(part), np.int64)
    day_fraction = np.zeros(len(part))
    for number in range(NUM_PARTS):
        here, among = part == number, np.flatnonzero(part_of_known == number)
        chosen = random.choice(among if len(among) else len(part_of_known), int(here.sum()))
        rows[here] = chosen
        day_fraction[here] = known.day_fraction[chosen] if len(among) else (number + 0.5) / NUM_PARTS
    return AgentConditions(known.scenario[rows], day_fraction)


def _as_often(random: np.random.Generator, agents: AgentTable, here: np.ndarray, num_rows: int) -> np.ndarray:
    among = np.flatnonzero(here)
    weight = agents.continuous[ACTIVITY][among] if ACTIVITY in agents.continuous else np.ones(len(among))
    return random.choice(among, num_rows, p=weight / weight.sum())


def as_requests(agents: AgentTable) -> pa.Table:
    """Agents as rows of the archive's table `requests`, on a Monday, with no outcome; names are their row numbers."""
    monday = dt.datetime(1970, 1, 5, tzinfo=dt.UTC)
    schema = arrow_schema(REQUESTS, SCHEMA_VERSION)
    found: dict[str, list] = {name: [None] * agents.num_rows for name in schema.names}
    seconds = agents.conditions.day_fraction * DAY_S
    found["arrival"] = [monday + dt.timedelta(seconds=float(second)) for second in seconds]
    found["request_id"] = [f"generated-{number}" for number in range(agents.num_rows)]
    found["site"], found["status"] = [UNKNOWN] * agents.num_rows, ["unknown"] * agents.num_rows
    for name, column in agents.labels.items():
        if name != CANDIDATES:
            found[name] = [label if label != UNKNOWN or name == "site" else None for label in column.tolist()]
    for name, column in agents.continuous.items():
        if name == ACTIVITY:
            found["agent"] = found["request_id"]
        else:
            amounts = [None if np.isnan(value) else value for value in column.tolist()]
            found[name] = (
                [value if value is None else round(value) for value in amounts]
                if name == "num_nodes"
                else amounts
            )
    lists = agents.categorical.get(CANDIDATES, np.full(agents.num_rows, ANY_NODE)).tolist()
    found[CANDIDATES] = [None if text == ANY_NODE else text.split(SEPARATOR) for text in lists]
    return pa.table(
        {name: pa.array(found[name], schema.field(name).type) for name in schema.names}, schema=schema
    )


def generated_arrivals(
    times: ArrivalModel, pool: RequestPool, *, begins: Windows | None = None, offset_s: float | None = None,
    length_s: float = DAY_S,
) -> Arrivals:  # fmt: skip
    """Arrivals that no log holds.

    Args:
        times: The arrival times.
        pool: The requests to draw from.
        begins: Logged windows to branch off from: an episode begins with the first request of one of them, and with
            what was in flight then. None: with an empty system.
        offset_s: Without `begins`: the time of the week at which episodes begin; drawn evenly if None.
        length_s: Episodes end with the last arrival before this time.

    Returns:
        Arrivals for `drawn_response`; with learned answers they make the full twin.
    """

    def draw(key: Array, clock_s: Array, offset: Array) -> Requests:
        week_s = jnp.mod(offset + clock_s, WEEK_S)
        day_fraction = jnp.mod(week_s, DAY_S) / DAY_S
        part = jnp.clip(jnp.floor(day_fraction * NUM_PARTS), 0, NUM_PARTS - 1).astype(jnp.int32)
        index = part * pool.num_rows + jax.random.randint(key, clock_s.shape, 0, pool.num_rows)
        drawn = jax.tree.map(lambda leaf: jnp.take(jnp.asarray(leaf), index, axis=-1), pool.request)
        drawn = drawn._replace(day_fraction=day_fraction, week_fraction=week_s / WEEK_S)
        return _seated(drawn)

    def init(key: Array, streams: Streams) -> tuple[_GeneratorState, First]:
        key_begin, key_slow, key_time, key_request = jax.random.split(key, 4)
        active = jnp.ones((1, *streams), bool)
        done = jnp.zeros(streams, bool)
        if begins is None:
            offset = jax.random.uniform(key_begin, streams, maxval=WEEK_S)
            offset = offset if offset_s is None else jnp.full(streams, offset_s, jnp.float32)
            flow = next_arrival(
                key_time, times, flow_at_any_time(key_slow, times, jnp.zeros(streams)), offset
            )
            offset = jnp.mod(offset + flow.clock_s, WEEK_S) if offset_s is None else offset
            flow = flow if offset_s is not None else flow._replace(clock_s=jnp.zeros(streams))
            clock_s = rounded(times, flow.clock_s)
            return _GeneratorState(flow, offset), First(
                clock_s, draw(key_request, clock_s, offset), active, done
            )
        window = choose_windows(key_begin, begins.num_windows, streams)
        offset = take(((begins.origin_s - MONDAY_S) % WEEK_S).astype(np.float32), window)
        clock_s = take(begins.arrival_s[0], window)
        request = jax.tree.map(lambda leaf: take(leaf, window), _first_of(begins.request))
        first = First(
            clock_s, _seated(request), active, done, take(begins.carried, window),
            last_end_s=take(begins.last_end_s, window),
        )  # fmt: skip
        return _GeneratorState(flow_at_arrival(key_slow, clock_s), offset), first

    def following(key: Array, private: PyTree, state: PlacementState, _fate: Fate) -> tuple[PyTree, Next]:
        key_time, key_request = jax.random.split(key)
        flow = next_arrival(key_time, times, private.flow, private.offset_s)
        clock_s = jnp.maximum(rounded(times, flow.clock_s), state.clock_s)
        done = clock_s >= length_s
        request = draw(key_request, clock_s, private.offset_s)
        clock_s = jnp.where(done, state.clock_s, clock_s)
        return private._replace(flow=flow), Next(clock_s, request, ~done[None], done)

    return Arrivals(init, following)


def _seated(request: Requests) -> Requests:
    """With a seat axis: leaves [1, *streams], demand [resources, 1, *streams]."""
    others = {name: getattr(request, name)[None] for name in Requests._fields if name != "demand"}
    return Requests(demand=request.demand[:, None], **others)


def _first_of(request: Requests) -> Requests:
    """The first request of every window: leaves [W], demand [resources, W]."""
    others = {name: getattr(request, name)[0] for name in Requests._fields if name != "demand"}
    return Requests(demand=request.demand[:, 0], **others)
