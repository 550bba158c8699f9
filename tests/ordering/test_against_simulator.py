"""The replay of the KTH log against an independent simulator's output, job by job.

Measured: every one of the 28,481 waits is the same to the second, under all three policies. Ties are where
simulators differ; with one look at the queue in each instant, ends before arrivals, 98.42 % agree under EASY.
"""

import gzip

import numpy as np
import pytest

from tests.ordering.making import use_peak
from twin.ordering.jobs import clairvoyant
from twin.ordering.replay import replay
from twin.ordering.rules import FCFS, SJF
from twin.ordering.types import Pool

CAPACITY = 100


def simulated_waits(path):
    """Job -> wait in seconds."""
    with gzip.open(path, "rt") as file:
        fields = (line.split() for line in file if not line.startswith(";"))
        return {job[0]: float(job[2]) for job in fields}


def roots(jobs, wait_s, expected_s):
    """The first job, in order of start, whose wait differs: whatever differs later may follow from it."""
    different = np.flatnonzero(np.abs(wait_s - expected_s) > 1.0)
    begin = jobs.arrival_s + np.minimum(wait_s, expected_s)
    worst = different[np.argsort(begin[different], kind="stable")][:1]
    return [(jobs.request_id[job], begin[job], wait_s[job], expected_s[job]) for job in worst]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "knows", "backfill"),
    [
        ("easy", None, None),
        ("easy-clairvoyant", clairvoyant, None),
        ("easy-sjbf-clairvoyant", clairvoyant, SJF),
    ],
)
def test_waits_are_the_simulators(kth, shared_data, file, knows, backfill):
    jobs = kth if knows is None else knows(kth)
    found = replay(jobs, Pool(CAPACITY, easy=True), FCFS, backfill=backfill)
    expected = simulated_waits(shared_data / "kth-sp2-resimulated" / f"{file}.swf.gz")
    assert sorted(jobs.request_id) == sorted(expected)
    wait_s = found.start_s - jobs.arrival_s
    expected_s = np.array([expected[job] for job in jobs.request_id])
    assert roots(jobs, wait_s, expected_s) == []
    assert np.mean(np.abs(wait_s - expected_s) <= 1.0) == 1.0
    assert use_peak(jobs, found.start_s) <= CAPACITY
    assert (found.num_too_large, found.num_overrunning, set(dict(jobs.counts).values())) == (0, 0, {0})
