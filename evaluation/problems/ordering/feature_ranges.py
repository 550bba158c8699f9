"""Ranges of an ordering policy's features: the logged queue at logged starts, as observed by a bundle's runner."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from logs_schema.calendar import DAY_S
from offline_rl.contract import NetworkFacts, read_json, refusing
from offline_rl.errors import PolicyInputError
from offline_rl.ordering.contract import ordering_contract
from offline_rl.recipes.training_days import typical_ranges
from offline_rl.runner import RunningJob, UserPast, WaitingJob
from offline_rl.runner.queue import queue_features
from twin.ordering.config import OrderingConfig
from twin.ordering.features import JOB_FEATURES, POOL_FEATURES
from twin.ordering.types import Jobs, Pool
from twin.ordering.users import histories
from twin.placement.features import Feature

RANGES = "ranges.json"
MAX_INSTANTS = 300
"""Logged starts that are looked at, spread over the training days."""
Ranges = Mapping[str, tuple[float, float]]
"""Feature -> least and largest usual value."""


def logged_ranges(
    jobs: Jobs, pool: Pool, config: OrderingConfig, anchor: int, num_days: int
) -> Ranges | None:
    """What the features of jobs and pool were on the training days; None where no start of them is logged.

    Args:
        jobs: All jobs that are known of.
        pool: The processors.
        config: What features are computed with.
        anchor: Days since 1970 (UTC): the first day after the training days.
        num_days: Training days.
    """
    contract = ordering_contract(pool, config, NetworkFacts("scorer", (1,), identity=False))
    origin_s = jobs.origin_us / 1e6
    begin_s, end_s = ((day * DAY_S - origin_s) for day in (anchor - num_days, anchor))
    starts_s = np.unique(
        jobs.logged_start_s[(jobs.logged_start_s >= begin_s) & (jobs.logged_start_s < end_s)]
    )
    instants_s = starts_s[np.linspace(0, len(starts_s) - 1, min(MAX_INSTANTS, len(starts_s))).astype(int)]
    if not len(instants_s):
        return None
    own = replace(config, num_agents=max(int(jobs.agent.max(initial=0)) + 1, 1))
    memory = histories(jobs, own, jobs.logged_start_s, instants_s)
    of_jobs, of_pool = [], []
    for place, now_s in enumerate(instants_s.tolist()):
        waiting, running, agents = _system(jobs, now_s, origin_s)
        users = {
            str(agent): UserPast(*(leaf[agent, place].item() for leaf in memory[:4])) for agent in agents
        }
        try:
            job, of_all = queue_features(waiting, running, users, origin_s + now_s, contract.setting)
        except PolicyInputError:
            continue  # a log may run more than the pool holds
        of_jobs.append(np.stack([job[one.name] for one in JOB_FEATURES], axis=-1))
        of_pool.append([of_all[one.name] for one in POOL_FEATURES])
    if not of_jobs:
        return None
    return _by_name(JOB_FEATURES, np.concatenate(of_jobs)) | _by_name(POOL_FEATURES, np.array(of_pool))


def save_ranges(ranges: Ranges | None, folder: Path) -> None:
    """Writes ranges into an existing folder."""
    (folder / RANGES).write_text(json.dumps(ranges))


def load_ranges(folder: Path) -> Ranges | None:
    """What `save_ranges` wrote; None in earlier policies, which have none; ProductError where it is damaged."""
    path = folder / RANGES
    if not path.exists():
        return None
    with refusing("the ranges cannot be read", path):
        found = read_json(path)
        return (
            None
            if found is None
            else {str(name): (float(low), float(high)) for name, (low, high) in found.items()}
        )


def _system(jobs: Jobs, now_s: float, origin_s: float) -> tuple[list[WaitingJob], list[RunningJob], set[int]]:
    """The waiting and the running jobs just before an instant; and the users of both."""
    start_s = jobs.logged_start_s
    waits = np.flatnonzero((jobs.arrival_s <= now_s) & (start_s >= now_s)).tolist()
    runs = np.flatnonzero((start_s < now_s) & (start_s + jobs.run_s > now_s)).tolist()

    def user(job: int) -> str | None:
        return str(jobs.agent[job]) if jobs.agent[job] >= 0 else None

    waiting = [
        WaitingJob(
            origin_s + float(jobs.arrival_s[job]),
            float(jobs.processors[job]),
            float(jobs.requested_s[job]),
            user(job),
        )
        for job in waits
    ]
    running = [
        RunningJob(
            float(jobs.processors[job]), origin_s + float(start_s[job] + jobs.requested_s[job]), user(job)
        )
        for job in runs
    ]
    return waiting, running, {int(agent) for agent in jobs.agent[[*waits, *runs]] if agent >= 0}


def _by_name(features: Sequence[Feature], rows: np.ndarray) -> dict[str, tuple[float, float]]:
    low, high = typical_ranges(rows.astype(float), np.array([one.unit == "flag" for one in features]))
    names = [one.name for one in features]
    return dict(zip(names, zip(low.tolist(), high.tolist(), strict=True), strict=True))
