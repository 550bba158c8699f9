"""Made-up decisions for the tests of metrics, bootstrap and comparison."""

import numpy as np

from evaluation.comparison.decisions import Decisions
from twin.placement.types import COMPLETED, REJECTED


def made_decisions(num_rows: int, **columns: object) -> Decisions:
    """Requests of one core, one a second, that start at once and run 100 s, unless columns say otherwise."""
    given = {name: np.asarray(value) for name, value in columns.items()}
    capacity, missing = given.pop("capacity", np.array([4.0, 8.0, 1.0])), columns.get("missing", {})
    given.pop("missing", None)
    arrival_s = given.pop("arrival_s", np.arange(num_rows, dtype=np.float64))
    start_s = arrival_s + given.pop("wait_s", 0.0)
    base = {
        "unit": np.zeros(num_rows, np.int64),
        "day": np.full(num_rows, 738_000),
        "agent": np.zeros(num_rows, np.int64),
        "site": np.zeros(num_rows, np.int64),
        "node": np.zeros(num_rows, np.int64),
        "off_site": np.zeros(num_rows, bool),
        "arrival_s": arrival_s,
        "start_s": start_s,
        "finish_s": start_s + given.pop("run_s", 100.0),
        "status": np.full(num_rows, COMPLETED),
        "expected_run_s": np.full(num_rows, 100.0),
        "deadline_s": np.full(num_rows, 200.0),
        "demand": np.ones((3, num_rows)),
        "settled": np.ones(num_rows, bool),
        "span_s": np.full(num_rows, 10.0),
        "begin_s": np.zeros(num_rows),
        "end_s": np.full(num_rows, 1e9),
    }
    base.update(given)
    accepted = base["status"] != REJECTED
    return Decisions(**base, accepted=accepted, capacity=capacity, missing=missing)
