"""A tiny log of three edges whose laws are given: computing is linear in the size, and lognormal around that."""

import datetime as dt

import numpy as np
import pyarrow as pa

from logs_schema import ArchiveWriter

FIRST = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
S_PER_MIB = (1.0, 2.0, 3.0)
SPREAD = 0.2


def write_log(path, num_days=1, num_rows=90, slower=1.0, cores=4.0, **columns):
    """An archive of `num_days` days of `num_rows` requests, two seconds apart, on n0, n1, n2 of sites a, b, b.

    Args:
        path: Of the archive.
        num_days, num_rows: How much.
        slower: Factor of computing times on the last day.
        cores: Of every node.
        columns: In place of the usual columns of requests, or beside them; None leaves one out.
    """
    rng = np.random.default_rng(0)
    total = num_days * num_rows
    day, row = np.divmod(np.arange(total), num_rows)
    size, node = rng.uniform(0.5, 4.0, total), rng.integers(3, size=total)
    seconds = np.array(S_PER_MIB)[node] * size * np.exp(SPREAD * rng.normal(size=total) - 0.5 * SPREAD**2)
    seconds *= np.where(day == num_days - 1, slower, 1.0)
    arrival = [
        FIRST + dt.timedelta(days=int(one), seconds=2.0 * int(two)) for one, two in zip(day, row, strict=True)
    ]
    requests = {
        "request_id": [f"r{one}" for one in range(total)],
        "arrival": arrival,
        "site": np.where(rng.random(total) < 0.5, "a", "b"),
        "input_mib": size,
        "offered_node": [f"n{one}" for one in node],
        "start": [one + dt.timedelta(seconds=0.1) for one in arrival],
        "finish": [
            one + dt.timedelta(seconds=0.1 + float(two)) for one, two in zip(arrival, seconds, strict=True)
        ],
        "status": ["completed"] * total,
    }
    nodes = {
        "node_id": ["n0", "n1", "n2"],
        "site": ["a", "b", "b"],
        "tier": ["edge"] * 3,
        "cpu_cores": [cores] * 3,
    }
    with ArchiveWriter(path) as writer:
        writer.write("nodes", pa.table(nodes), source="the test")
        kept = {name: one for name, one in (requests | columns).items() if one is not None}
        writer.write("requests", pa.table(kept), source="the test")
    return path
