"""A log of agents who come in campaigns and keep a preference to themselves.

One agent at a time asks, for some sixty requests. It is either willing (accepts 95 % of all offers) or stubborn (15 %),
half of them each, and nothing that is logged beforehand tells which. What it accepts starts at once and runs about
`RUN_S`; requests come every second. A model that takes answers one by one gets every probability right and the number
of requests in flight wrong: it is 0.55 * RUN_S, give or take chance, not either 0.95 * RUN_S or 0.15 * RUN_S.
"""

import numpy as np

from tests.twin.made import made_cluster, made_encoding
from twin.placement.encode import Rows, cut_windows
from twin.placement.encoding import Encoding
from twin.placement.types import COMPLETED, REJECTED, Requests
from twin.placement.windows import Windows

WILLING, STUBBORN = 0.95, 0.15
RUN_S = 20.0
MEAN_CAMPAIGN = 60
CLUSTER = made_cluster(num_edge=1, num_sites=1, num_services=2)


def campaign_encoding() -> Encoding:
    """Room for all that may be in flight."""
    return made_encoding(CLUSTER, depth=64, time_unit_s=5.0)


def campaign_rows(seed: int, count: int, *, stubborn: bool = True) -> Rows:
    """The log; without `stubborn` every agent accepts 55 %."""
    rng = np.random.default_rng(seed)
    begins = rng.random(count) < 1.0 / MEAN_CAMPAIGN
    agent = np.cumsum(begins)
    preference = np.where(rng.random(agent[-1] + 1) < 0.5, WILLING, STUBBORN)
    mean = 0.5 * (WILLING + STUBBORN)
    accepted = rng.random(count) < (preference[agent] if stubborn else mean)
    arrival_s = 1.6e9 + np.cumsum(rng.uniform(0.5, 1.5, count))
    run_s = RUN_S * rng.lognormal(0.0, 0.1, count)
    start_s = np.where(accepted, arrival_s, np.inf)
    status = np.where(accepted, COMPLETED, REJECTED).astype(np.int32)
    zero = np.zeros(count, np.int32)
    small = np.full(count, 0.01, np.float32)
    usual = np.full(count, mean, np.float32)
    requests = Requests(
        site=zero, scenario=zero, service=zero + 1, queue=zero, agent=agent.astype(np.int32), rule=zero,
        demand=np.stack([small, small, 0.0 * small]), num_nodes=np.ones(count, np.float32),
        expected_run_s=np.full(count, RUN_S, np.float32), deadline_s=np.full(count, np.inf, np.float32),
        input_mib=0.0 * small, day_fraction=0.5 + 0.0 * small, week_fraction=0.5 + 0.0 * small,
        accepts_home=usual, accepts_elsewhere=usual, accepts_cloud=usual,
    )  # fmt: skip
    node = rng.integers(0, CLUSTER.num_nodes, count).astype(np.int32)
    names = np.array([f"request-{i}" for i in range(count)])
    return Rows(arrival_s, start_s, start_s + run_s, status, node, requests, names, np.zeros(count, bool))


def campaigns(seed: int, num_windows: int, num_steps: int, *, stubborn: bool = True) -> Windows:
    """Windows that do not overlap."""
    rows = campaign_rows(seed, num_windows * num_steps, stubborn=stubborn)
    return cut_windows(rows, np.ones(rows.num_rows, bool), campaign_encoding(), num_steps=num_steps)
