"""Small tables of agents whose law is known."""

import numpy as np

from twin.population import AgentConditions, AgentTable
from twin.population.adversarial import AdversarialConfig
from twin.population.training import SearchConfig

SERVICES = np.array(["a", "b", "c"])
SCALE = np.array([1.0, 4.0, 20.0])


def agents(num_rows: int, seed: int = 0) -> AgentTable:
    """Service leans on scenario and hour, size on service, deadline follows from both; one core always."""
    random = np.random.default_rng(seed)
    scenario, day = random.integers(0, 2, num_rows), random.random(num_rows)
    night = (day < 0.5).astype(int)
    share = np.array([[[0.8, 0.1, 0.1], [0.3, 0.6, 0.1]], [[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]])[
        scenario, night
    ]
    service = np.sum(random.random(num_rows)[:, None] > np.cumsum(share, axis=1), axis=1)
    size = SCALE[service] * np.exp(0.3 * random.standard_normal(num_rows))
    return AgentTable(
        AgentConditions(np.array(["slow", "quick"])[scenario], day),
        {"service": SERVICES[service], "site": np.array(["x", "y"])[random.integers(0, 2, num_rows)]},
        {
            "cpu_cores": np.ones(num_rows),
            "input_mib": size,
            "deadline_s": 10.0 * (service + 1.0) + 100.0 * scenario,
        },
    )


def tiny(**changes: object) -> AdversarialConfig:
    """A configuration for tests of mechanics: few rounds of small networks."""
    search = SearchConfig(num_rounds=30, rounds_a_look=10, patience=5)
    small = {"hidden": (16,), "discriminator_hidden": (16,), "batch_size": 64, "search": search}
    return AdversarialConfig(**small | changes)  # type: ignore[arg-type]
