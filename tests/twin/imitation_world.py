"""Logs of worlds that keep something to themselves: what a model that takes answers one by one cannot see.

* `campaigns`: one agent at a time asks, for some sixty requests. It is either willing (accepts 95 % of all offers) or
  stubborn (15 %), half of them each, and nothing that is logged beforehand tells which.
* `returning`: the same, but the agents are the same few every time, and what they usually accept is told, as a twin
  tells it.
* `phases`: every node has slow and fast times of some sixty requests, which no log names. All offers are accepted.
* `bursts`: some ten requests in a row, of whichever agents, meet one hidden mood: accepted by 95 % or by 15 %.

What is accepted starts at once and runs about `RUN_S`; requests come every second. A model that takes answers one by
one gets every probability right and the number of requests in flight wrong: in `campaigns` it is 0.55 * RUN_S, give or
take chance, not either 0.95 * RUN_S or 0.15 * RUN_S.
"""

from collections.abc import Callable

import numpy as np

from tests.twin.made import made_cluster, made_encoding
from twin.placement.encode import EncodedRows, cut_windows
from twin.placement.encoding import Encoding
from twin.placement.service_times import acceptances
from twin.placement.types import COMPLETED, REJECTED, Requests
from twin.placement.windows import Windows

WILLING, STUBBORN = 0.95, 0.15
RUN_S = 20.0
FAST, SLOW = 0.4, 2.0
"""Of `RUN_S`, in a node's fast and slow times."""
MEAN_CAMPAIGN, MEAN_PHASE, MEAN_BURST = 60, 60, 10
NUM_RETURNING, NUM_ALIKE = 20, 8
"""Agents who come again and again; agents who ask in turn where no agent has a preference."""
CLUSTER = made_cluster(num_edge=1, num_sites=1, num_services=2)


def campaign_encoding() -> Encoding:
    """Room for all that may be in flight."""
    return made_encoding(CLUSTER, depth=64, time_unit_s=5.0)


def campaign_rows(seed: int, count: int, *, stubborn: bool = True) -> EncodedRows:
    """New agents all the time; without `stubborn` every agent accepts 55 %."""
    rng = np.random.default_rng(seed)
    agent = _spells(rng, count, MEAN_CAMPAIGN)
    preference = np.where(rng.random(agent[-1] + 1) < 0.5, WILLING, STUBBORN)
    accepted = rng.random(count) < (preference[agent] if stubborn else 0.5 * (WILLING + STUBBORN))
    return _rows(rng, agent, accepted)


def returning_rows(seed: int, count: int, *, history: EncodedRows | None = None) -> EncodedRows:
    """The same agents in every log, every other one willing; what they usually accept is that of `history`.

    Args:
        seed: Of who comes when, and of chance.
        count: Rows.
        history: The log that was learned from; by default this log itself.
    """
    rng = np.random.default_rng(seed)
    campaign = _spells(rng, count, MEAN_CAMPAIGN)
    agent = rng.integers(0, NUM_RETURNING, campaign[-1] + 1)[campaign]
    accepted = rng.random(count) < np.where(agent % 2, WILLING, STUBBORN)
    rows = _rows(rng, agent, accepted)
    usual = _usual(rows if history is None else history)[agent]
    told = rows.request._replace(accepts_home=usual, accepts_elsewhere=usual, accepts_cloud=usual)
    return rows._replace(request=told)


def phase_rows(seed: int, count: int) -> EncodedRows:
    """Nodes are slow and fast in turn; agents are alike."""
    rng = np.random.default_rng(seed)
    pace = np.stack([_drawn(rng, count, MEAN_PHASE, FAST, SLOW) for _ in range(CLUSTER.num_nodes)])
    agent = rng.integers(0, NUM_ALIKE, count)
    return _rows(rng, agent, np.ones(count, bool), usual=1.0, pace=pace)


def burst_rows(seed: int, count: int) -> EncodedRows:
    """Consecutive requests share a mood; agents are alike."""
    rng = np.random.default_rng(seed)
    accepted = rng.random(count) < _drawn(rng, count, MEAN_BURST, WILLING, STUBBORN)
    return _rows(rng, rng.integers(0, NUM_ALIKE, count), accepted)


WORLDS: dict[str, Callable[[int, int], EncodedRows]] = {
    "campaigns": campaign_rows,
    "returning": returning_rows,
    "phases": phase_rows,
    "bursts": burst_rows,
}
"""A log of so many rows from a seed."""


def campaigns(seed: int, num_windows: int, num_steps: int, *, stubborn: bool = True) -> Windows:
    """Windows that do not overlap."""
    return windows_of(campaign_rows(seed, num_windows * num_steps, stubborn=stubborn), num_steps)


def windows_of(rows: EncodedRows, num_steps: int) -> Windows:
    """Windows that do not overlap."""
    return cut_windows(rows, np.ones(rows.num_rows, bool), campaign_encoding(), num_steps=num_steps)


def _spells(rng: np.random.Generator, count: int, mean: int) -> np.ndarray:
    """[count] number of the spell that a row belongs to; spells are `mean` rows long, give or take."""
    return np.cumsum(rng.random(count) < 1.0 / mean)


def _drawn(rng: np.random.Generator, count: int, mean: int, one: float, other: float) -> np.ndarray:
    """[count] either value for a whole spell, half of the spells each."""
    spell = _spells(rng, count, mean)
    return np.where(rng.random(spell[-1] + 1) < 0.5, one, other)[spell]


def _usual(history: EncodedRows) -> np.ndarray:
    """[NUM_RETURNING] what agents usually accept, as a twin is told it."""
    zero = np.zeros(history.num_rows, np.int64)
    names = np.array([f"{agent:03d}" for agent in history.request.agent])
    told = acceptances((history.status != REJECTED).astype(float), zero, zero, names, 1)
    usual = np.full(NUM_RETURNING, told.of_scenario[0, 0], np.float32)
    usual[[int(name) for name in told.agents]] = told.of_agent[:, 0]
    return usual


def _rows(
    rng: np.random.Generator,
    agent: np.ndarray,
    accepted: np.ndarray,
    *,
    usual: float = 0.5 * (WILLING + STUBBORN),
    pace: np.ndarray | None = None,
) -> EncodedRows:
    """A log of the submitting user and what is accepted; run times are `pace` [nodes, rows] times `RUN_S`, give or
    take."""
    count = len(agent)
    arrival_s = 1.6e9 + np.cumsum(rng.uniform(0.5, 1.5, count))
    run_s = RUN_S * rng.lognormal(0.0, 0.1, count)
    node = rng.integers(0, CLUSTER.num_nodes, count).astype(np.int32)
    if pace is not None:
        run_s *= pace[node, np.arange(count)]
    start_s = np.where(accepted, arrival_s, np.inf)
    status = np.where(accepted, COMPLETED, REJECTED).astype(np.int32)
    zero = np.zeros(count, np.int32)
    small = np.full(count, 0.01, np.float32)
    told = np.full(count, usual, np.float32)
    requests = Requests(
        site=zero, scenario=zero, service=zero + 1, queue=zero, agent=agent.astype(np.int32), rule=zero,
        demand=np.stack([small, small, 0.0 * small]), num_nodes=np.ones(count, np.float32),
        expected_run_s=np.full(count, RUN_S, np.float32), deadline_s=np.full(count, np.inf, np.float32),
        input_mib=0.0 * small, day_fraction=0.5 + 0.0 * small, week_fraction=0.5 + 0.0 * small,
        accepts_home=told, accepts_elsewhere=told, accepts_cloud=told,
    )  # fmt: skip
    names = np.array([f"request-{i}" for i in range(count)])
    return EncodedRows(
        arrival_s, start_s, start_s + run_s, status, node, requests, names, np.zeros(count, bool)
    )
