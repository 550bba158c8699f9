"""Small archives whose nodes are of several classes."""

import numpy as np
import pyarrow as pa

from logs_schema.archive_writer import ArchiveWriter

SECOND_0 = 1_000_000_000
NODES = (
    ("a1", "wide", 8.0),
    ("a2", "wide", 8.0),
    ("b1", "slim", 3.0),
    ("b2", "slim", 3.0),
    ("c1", None, 5.0),
)
OF_CLASS = {"wide": ("a1", "a2"), "slim": ("b1", "b2")}
LARGEST = {"wide": 19, "slim": 8}
"""Of the requests: some are larger than their pool."""


def job(request_id, arrival, *, processors=1, asked=60, ran=60, waited=0, agent="u", **nodes):
    """A row of `requests`; times in seconds."""
    return {
        "request_id": request_id,
        "arrival": arrival,
        "cpu_cores": float(processors),
        "requested_run_s": float(asked),
        "start": arrival + waited,
        "finish": arrival + waited + ran,
        "agent": agent,
        **nodes,
    }


def random_jobs(seed, num_jobs=150, num_days=3):
    """A crowded log, full of ties, on the two classes; some jobs run on two nodes of a class."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(num_jobs):
        pool = ("wide", "slim")[rng.integers(2)]
        nodes = [str(one) for one in rng.permutation(OF_CLASS[pool])]
        asked = int(rng.integers(1, 60)) * 600
        rows.append(job(
            str(number), int(rng.integers(0, num_days * 144)) * 600, processors=rng.integers(1, LARGEST[pool]),
            asked=asked, ran=int(rng.integers(-600, 1.2 * asked).clip(0)), waited=int(rng.integers(0, 9)) * 600,
            agent=f"user {rng.integers(5)}", ran_node=nodes[0], ran_nodes=nodes if rng.integers(9) == 0 else None,
        ))  # fmt: skip
    return rows


def write(folder, rows, nodes=NODES, tier="pool"):
    """An archive of these rows and nodes; its folder."""
    instant = pa.timestamp("us", "UTC")
    times = {
        name: pa.array([(SECOND_0 + row[name]) * 1_000_000 for row in rows]).cast(instant)
        for name in ("arrival", "start", "finish")
    }
    plain = {
        name: pa.array([row.get(name) for row in rows], kind)
        for name, kind in (
            ("request_id", pa.string()),
            ("cpu_cores", pa.float64()),
            ("gpus", pa.float64()),
            ("memory_gib", pa.float64()),
            ("requested_run_s", pa.float64()),
            ("agent", pa.string()),
            ("ran_node", pa.string()),
            ("ran_nodes", pa.list_(pa.string())),
            ("offered_node", pa.string()),
        )
    }
    fixed = {"site": ["here"] * len(rows), "status": ["completed"] * len(rows)}
    node_id, node_class, cores = zip(*nodes, strict=True)
    table = {"node_id": node_id, "node_class": node_class, "cpu_cores": cores}
    table |= {"site": ["here"] * len(nodes), "tier": [tier] * len(nodes)}
    with ArchiveWriter(folder) as archive:
        archive.write(
            "nodes", pa.table({name: pa.array(column) for name, column in table.items()}), source="test"
        )
        archive.write("requests", pa.table(times | plain | fixed), source="test")
    return folder
