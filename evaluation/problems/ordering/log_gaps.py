"""What a log of a queue leaves out, and which orders remain then, in words for the reader of a comparison."""

from collections.abc import Mapping, Sequence

import numpy as np

from evaluation.comparison.formatting import as_sentence
from logs_schema.concurrency import most_at_once
from twin.ordering.types import Jobs, Pool

LEFT_OUT = {"no_processors": "no processors", "no_run_time": "no run time"}
"""Rule by which a job is left out for want of something -> what it has not."""
ALL_EQUAL = "none waits, and all orders are equal"
WITH_ROOM = "processors enough for them were free"


def left_out_in_words(counts: Mapping[str, int]) -> list[str]:
    """That jobs are left out for what the log does not say of them, in one sentence; nothing where it says all.

    Args:
        counts: of the jobs of an archive, see `twin.ordering.jobs`.
    """
    found = [f"{counts[rule]:,} have {what}" for rule, what in LEFT_OUT.items() if counts.get(rule)]
    return [f"of the archive's jobs {', '.join(found)}: left out, they delay no other"] if found else []


def lacking_in_words(jobs: Jobs, pool: Pool) -> list[str]:
    """One sentence for each thing that is not known, or cannot be played."""
    num_jobs, notes = len(jobs.arrival_s), [*left_out_in_words(dict(jobs.counts)), *room_in_words(jobs, pool)]
    no_request = dict(jobs.counts).get("no_request", 0)
    if no_request:
        notes.append(
            f"{no_request:,} of {num_jobs:,} jobs have no requested run time, and count as the longest"
            + (
                ": sjf is fcfs, saf orders by processors only, short and long jobs differ in predictions only"
                if no_request == num_jobs
                else ""
            )
        )
    if not np.any(jobs.agent >= 0):
        notes.append(
            "the log does not name the users of jobs: orders by predicted run times are those by requests"
        )
    return notes


def head_in_words(notes: Sequence[str]) -> list[str]:
    """Of a comparison's notes those that make all of it idle, or doubtful, as sentences for its head; else none."""
    return [as_sentence(note) for note in notes if any(one in note for one in (ALL_EQUAL, WITH_ROOM))]


def room_in_words(jobs: Jobs, pool: Pool) -> list[str]:
    """How many jobs are larger than the pool, and that it has room for all others when they arrive, where that is so.

    In such a pool no order makes a difference. A size that is given may be of nodes where jobs request cores.
    """
    fits, notes = jobs.processors <= pool.processors, []
    if not fits.all():
        notes.append(
            f"{np.sum(~fits):,} of {len(fits):,} jobs request more than the pool's {pool.processors:,g} processors: "
            "they never start, and are in no metric; is the pool larger (--processors)?"
        )
    begin_s, processors = jobs.arrival_s[fits], jobs.processors[fits]
    most = most_at_once(begin_s, begin_s + jobs.run_s[fits], processors)
    if most <= pool.processors:
        who, smaller = (
            ("jobs", "; is the pool smaller (--processors)?") if fits.all() else ("the other jobs", "")
        )
        notes.append(
            f"the pool has {pool.processors:,g} processors, and {who} that start when they arrive never hold more than "
            f"{most:,g} at once: {ALL_EQUAL}{smaller}"
        )
    return notes
