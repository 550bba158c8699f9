"""A log to learn from, of three edges that are known exactly: so the best that can be had is known too."""

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa

from logs_schema import ArchiveWriter

NAMES = ("near", "middle", "far")
CORES = (2.0, 8.0, 64.0)
DELAY_S, S_PER_MIB = (0.2, 1.0, 3.0), (1.0, 0.3, 0.05)
SPREAD = 0.1
FIRST_DAY = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
EXPLORED = 0.3
"""Share of batches that were sent anywhere; the others went to the edge in the middle."""


def write_log(out: Path, num_days: int = 24, batches_a_day: int = 60, seed: int = 0) -> None:
    """Writes an archive of batches: one request each, `input_mib` large, with the edge that was chosen."""
    rng = np.random.default_rng(seed)
    num_rows = num_days * batches_a_day
    size_mib = np.exp(rng.uniform(np.log(0.2), np.log(60.0), num_rows))
    edge = np.where(rng.random(num_rows) < EXPLORED, rng.integers(3, size=num_rows), 1)
    expected_s = np.array(DELAY_S)[edge] + np.array(S_PER_MIB)[edge] * size_mib
    response_s = expected_s * np.exp(SPREAD * rng.normal(size=num_rows) - 0.5 * SPREAD**2)
    arrival_s = np.sort(rng.uniform(0.0, num_days * 86_400.0 - 120.0, num_rows))
    arrival = [FIRST_DAY + dt.timedelta(seconds=second) for second in arrival_s]
    finish = [begin + dt.timedelta(seconds=second) for begin, second in zip(arrival, response_s, strict=True)]
    requests = {
        "request_id": [f"batch-{row}" for row in range(num_rows)],
        "arrival": arrival,
        "site": ["camera"] * num_rows,
        "input_mib": size_mib,
        "offered_node": [NAMES[one] for one in edge],
        "propensity": np.where(edge == 1, 1.0 - EXPLORED * 2 / 3, EXPLORED / 3),
        "start": arrival,
        "finish": finish,
        "status": ["completed"] * num_rows,
    }
    nodes = {"node_id": NAMES, "site": NAMES, "tier": ("edge", "edge", "cloud"), "cpu_cores": CORES}
    truth = dict(zip(NAMES, zip(DELAY_S, S_PER_MIB, strict=True), strict=True))
    with ArchiveWriter(out, facts={"edges": truth}) as writer:
        writer.write("nodes", pa.table(nodes), source="the example")
        writer.write("requests", pa.table(requests), source="the example")
