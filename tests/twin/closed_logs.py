"""Made logs of agents that await their answers, and of others."""

import numpy as np

from twin.placement.types import COMPLETED


def log_of(rng: np.random.Generator, kind: str, num_agents: int = 20, per_agent: int = 150):
    """Arrivals, ends, statuses and agents of requests whose response times scatter around 10 s."""
    rows = []
    for agent in range(num_agents):
        now_s, ended_s = rng.uniform(0.0, 50.0), 0.0
        for _ in range(per_agent):
            ended_s = now_s + rng.lognormal(2.0, 0.7)
            rows.append((now_s, ended_s, COMPLETED, agent))
            if kind == "awaiting":
                now_s = ended_s + rng.exponential(10.0)
            elif kind == "open":
                now_s += rng.exponential(20.0)
            elif kind == "timer":
                now_s += 120.0 + rng.uniform(0.0, 5.0)
    rows.sort()
    return tuple(np.array(column) for column in zip(*rows, strict=True))
