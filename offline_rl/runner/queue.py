"""An exported ordering policy at work: which of the waiting jobs is next, from plain descriptions, with NumPy alone.

The caller keeps the queue, what runs, and for every user what the finished jobs were like (`UserPast.ended`). Instants
are seconds since 1970 (UTC). What the numbers mean stands in the bundle's contract; `twin.ordering.features` computes
the same in JAX.
"""

from collections.abc import Mapping, Sequence
from math import log1p
from typing import Any

import numpy as np

from logs_schema.calendar import DAY_S, MONDAY_S, WEEK_S
from logs_schema.errors import ProductError
from offline_rl.errors import PolicyInputError
from offline_rl.runner import queue_rules, queue_starting
from offline_rl.runner.form import refuse_other_problem
from offline_rl.runner.network import ExportedPolicy
from offline_rl.runner.queue_descriptions import RunningJob, UserPast, WaitingJob, refuse_impossible
from offline_rl.runner.queue_starting import (
    PARTS,
    in_order,
    in_order_of_rule,
    parts_of,
    reservation,
    rule_inputs,
    starting,
)

PROBLEM = "ordering"
FIRST_COME = {"rule": "fcfs", "backfill": "by_arrival"}
EVERY_JOB = "every_job"
"""Key of a setting: whether each job is scored by itself, so that all that wait are chosen among, however many."""
OF_PREDICTIONS = ("predicts", "reserves")
"""Keys of a setting about predictions, which the fallback rule need not share."""
HORIZONS = (0.5, 2.0, 8.0, 32.0)


class QueuePolicy:
    """Decides which waiting job is next.

    Args:
        policy: a loaded bundle of an ordering policy.

    Raises:
        ProductError: The bundle is of another problem, or needs features unknown here.
    """

    def __init__(self, policy: ExportedPolicy) -> None:
        self.policy, self.setting = policy, policy.contract.setting
        refuse_other_problem(policy.contract, PROBLEM)
        _refuse_other_setting(self.setting, len(policy.contract.choices))
        alone = [WaitingJob(0.0, 1.0, 1.0)]
        known = [*_of_jobs(alone, [], {}, 0.0, self.setting), *_of_pool(alone, [], 0.0, self.setting)]
        needed = [one.name for one in (*policy.contract.choice_features, *policy.contract.context_features)]
        if strange := [name for name in needed if name not in known]:
            raise ProductError("this bundle needs features unknown here", where=", ".join(strange))
        own = {name: value for name, value in self.setting.items() if name not in OF_PREDICTIONS}
        self._of_rule = own | self.setting.get("fallback", FIRST_COME)
        _refuse_unknown_orders(self.setting, self._of_rule, alone)

    def decide(
        self,
        waiting: Sequence[WaitingJob],
        running: Sequence[RunningJob],
        users: Mapping[str, UserPast],
        clock_s: float,
    ) -> int | None:
        """The place in `waiting` of the job that is next, None if no job waits.

        If it fits, start it and call again; if not, keep the machine for it and, with EASY, let others fill the gap.

        Args:
            waiting: in order of arrival; rules and indices choose among all of them, other networks among the first so
                many that the contract names.
            running: in any order.
            users: what is known of them; a missing one has no past.
            clock_s: now.

        Raises:
            PolicyInputError: A number cannot be, or jobs are not in order of arrival.
        """
        return self._next(users, clock_s, waiting, running) if waiting else None

    def _next(
        self,
        users: Mapping[str, UserPast],
        clock_s: float,
        waiting: Sequence[WaitingJob],
        running: Sequence[RunningJob],
    ) -> int:
        return int(np.argmax(self._scores(waiting, running, users, clock_s)))

    def _scores(
        self,
        waiting: Sequence[WaitingJob],
        running: Sequence[RunningJob],
        users: Mapping[str, UserPast],
        clock_s: float,
    ) -> np.ndarray:
        """[jobs that are chosen among] the network's."""
        choices, context = self.features(waiting, running, users, clock_s)
        return self.policy.logits(choices, context, np.ones((1, choices.shape[1]), bool))[0]

    def starting(
        self,
        waiting: Sequence[WaitingJob],
        running: Sequence[RunningJob],
        users: Mapping[str, UserPast],
        clock_s: float,
    ) -> list[int]:
        """The places in `waiting` of all jobs that start now, in the order in which they do (`queue_starting`).

        Raises:
            PolicyInputError: As `decide`.
        """
        refuse_impossible(waiting, running, clock_s)

        def following(left: Sequence[int], held: Sequence[RunningJob]) -> int:
            return self._next(users, clock_s, [waiting[place] for place in left], held)

        def ranked(left: Sequence[int]) -> np.ndarray:
            scores = self._scores([waiting[place] for place in left], running, users, clock_s)
            return np.argsort(-scores, kind="stable")

        order = in_order(ranked) if scores_each(self.setting) else following
        return starting(self.setting, order, waiting, running, users, clock_s)

    def starting_by_rule(
        self,
        waiting: Sequence[WaitingJob],
        running: Sequence[RunningJob],
        users: Mapping[str, UserPast],
        clock_s: float,
    ) -> list[int]:
        """What would start under the rule that stands in for the policy (`fallback` of the setting; else first come).

        Raises:
            PolicyInputError: As `decide`.
        """
        refuse_impossible(waiting, running, clock_s)
        following = in_order_of_rule(self._of_rule, waiting, users, clock_s)
        return starting(self._of_rule, following, waiting, running, users, clock_s)

    def too_large(self, waiting: Sequence[WaitingJob]) -> list[int]:
        """The places in `waiting` of the jobs that request more processors than there are: they never start."""
        return queue_starting.too_large(self.setting, waiting)

    @property
    def predicts(self) -> bool:
        """Whether run times are predicted; otherwise they are those that jobs request."""
        return queue_rules.predicts(self.setting)

    def predicted_s(self, requested_s: float, past: UserPast) -> float:
        """The run time to expect of a job that comes now: what it requests, where the bundle predicts nothing."""
        return queue_rules.predicted_s(self.setting, requested_s, past.last_s, past.before_s)

    def expected_end_s(
        self, started_s: float, predicted_s: float, requested_s: float, clock_s: float
    ) -> float:
        """When a running job is expected to end: by its request, or by its prediction, corrected where that ran out."""
        if not queue_rules.reserves(self.setting):
            return started_s + requested_s
        return queue_rules.corrected_end_s(self.setting, started_s, predicted_s, requested_s, clock_s)

    def features(
        self,
        waiting: Sequence[WaitingJob],
        running: Sequence[RunningJob],
        users: Mapping[str, UserPast],
        clock_s: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        """The input of the policy: choices [1, jobs, F] and context [1, R], float32, in the contract's order."""
        contract = self.policy.contract
        job, pool = queue_features(waiting, running, users, clock_s, self.setting)
        choices = np.stack([job[one.name] for one in contract.choice_features], axis=-1)
        context = np.array([pool[one.name] for one in contract.context_features])
        return choices[None].astype(np.float32), context[None].astype(np.float32)


def queue_features(
    waiting: Sequence[WaitingJob],
    running: Sequence[RunningJob],
    users: Mapping[str, UserPast],
    clock_s: float,
    setting: Mapping[str, Any],
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Every feature that an ordering policy may need, by name: of the visible jobs [jobs], and of the pool.

    Args:
        waiting, running, users, clock_s: As `QueuePolicy.decide`; at least one job waits.
        setting: Of the contract.

    Raises:
        PolicyInputError: A number cannot be, or jobs are not in order of arrival.
    """
    refuse_impossible(waiting, running, clock_s)
    return _of_jobs(waiting, running, users, clock_s, setting), _of_pool(waiting, running, clock_s, setting)


def scores_each(setting: Mapping[str, Any]) -> bool:
    """Whether a contract's setting is of a rule or an index: each job is scored by itself, whatever else waits.

    Bundles of older versions do not say so, and choose among the jobs that came first, as their goldens do.
    """
    return bool(setting.get(EVERY_JOB))


def _refuse_other_setting(setting: Mapping[str, Any], num_choices: int) -> None:
    """Makes sure that a contract's setting can be computed with; ProductError where not."""
    for name in ("processors", "tick_s", "time_unit_s", "slowdown_floor_s", "queue_size", "num_visible"):
        amount = setting.get(name)
        is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not is_number or not 0.0 < float(amount or 0.0) < np.inf:
            raise ProductError(
                "the contract's setting is none of an ordering policy",
                where=f"{name}: {amount!r}",
                allowed="a positive, finite number",
                advice="export the policy again",
            )
    if setting["num_visible"] != num_choices:
        raise ProductError(
            "the contract's places are not its choices",
            where=f"num_visible {setting['num_visible']}, {num_choices} choices",
            advice="export the policy again",
        )


def _refuse_unknown_orders(
    own: Mapping[str, Any], of_rule: Mapping[str, Any], jobs: Sequence[WaitingJob]
) -> None:
    """ProductError where a setting, or that of the rule that stands in, names an order that is unknown here: else it
    would be found out by the first queue that needs it."""
    queue_rules.places(of_rule, rule_inputs(jobs, {}, 0.0, of_rule))
    for setting in (own, of_rule):
        if setting.get("easy"):
            queue_rules.backfilling(setting, rule_inputs(jobs, {}, 0.0, setting))


def _of_jobs(
    waiting: Sequence[WaitingJob],
    running: Sequence[RunningJob],
    users: Mapping[str, UserPast],
    clock_s: float,
    setting: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    unit_s, size, visible = setting["time_unit_s"], setting["processors"], waiting
    if not scores_each(setting):
        visible = waiting[: setting["num_visible"]]
    free, free_after, shadow_s, extra = _free_capacity(waiting, running, clock_s, setting)
    parts = np.array([parts_of(one.processors) for one in visible])
    requested_s = np.array([one.requested_s for one in visible])
    wait_s = clock_s - np.array([one.arrival_s for one in visible])
    no_past = UserPast()
    past = [users.get(one.user, no_past) if one.user is not None else no_past for one in visible]
    count = np.array([one.num_finished for one in past], float)
    ratio = np.where(count > 0, [one.ratio for one in past], 1.0)
    place, processors, fits = np.arange(len(visible)), parts / PARTS, parts <= free
    in_time = (clock_s + requested_s <= shadow_s) | (parts <= extra) | (place == 0)
    floor_s = setting["slowdown_floor_s"]
    return {
        "wait": np.log1p(wait_s / unit_s),
        "requested": np.log1p(requested_s / unit_s),
        "predicted": np.log1p(requested_s / unit_s * ratio),
        "user_run": np.where(count > 0, [one.log_run for one in past], 0.0),
        "user_haste": np.where(count > 0, [one.haste for one in past], 0.0),
        "share": processors / size,
        "width": np.log1p(processors) / np.log1p(size),
        "area": np.log1p(processors / size * requested_s / unit_s),
        "slowdown": _slowdown(wait_s, requested_s, floor_s),
        "predicted_slowdown": _slowdown(wait_s, requested_s * ratio, floor_s),
        "fits": fits,
        **{
            f"fits_after_{horizon:g}": parts <= later
            for horizon, later in zip(HORIZONS, free_after, strict=True)
        },
        "could_backfill": fits & in_time,
        "known_user": 1.0 - 1.0 / (1.0 + count),
        "user_ratio": ratio,
        "user_waiting": _counts(visible, waiting),
        "user_running": _counts(visible, running),
        "place": place / setting["num_visible"],
        "waited": wait_s / DAY_S,
        **_of_rule(visible, users, clock_s, setting),
    }


def _of_rule(
    visible: Sequence[WaitingJob], users: Mapping[str, UserPast], clock_s: float, setting: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """The places in the order of the rule that the bundle holds, if it holds one."""
    if "rule" not in setting:
        return {}
    jobs = rule_inputs(visible, users, clock_s, setting)
    return {"rule_place": queue_rules.places(setting, jobs) / setting["num_visible"]}


def _of_pool(
    waiting: Sequence[WaitingJob], running: Sequence[RunningJob], clock_s: float, setting: Mapping[str, Any]
) -> dict[str, float]:
    unit_s, size = setting["time_unit_s"], setting["processors"] * PARTS
    free, free_after, shadow_s, _ = _free_capacity(waiting, running, clock_s, setting)
    requested = sum(one.requested_s / unit_s * parts_of(one.processors) for one in waiting)
    left = sum(max(one.expected_end_s - clock_s, 0.0) / unit_s * parts_of(one.processors) for one in running)
    day, week = (
        2.0 * np.pi * (since_s % span_s) / span_s
        for since_s, span_s in ((clock_s, DAY_S), (clock_s - MONDAY_S, WEEK_S))
    )
    return {
        "free": free / size,
        **{
            f"free_after_{horizon:g}": later / size
            for horizon, later in zip(HORIZONS, free_after, strict=True)
        },
        "num_waiting": log1p(len(waiting)) / 4.0,
        "unseen": max(len(waiting) - setting["num_visible"], 0) / setting["queue_size"],
        "num_running": log1p(len(running)) / 4.0,
        "waiting_work": log1p(requested / size),
        "running_work": log1p(left / size),
        "oldest_wait": log1p((clock_s - waiting[0].arrival_s) / unit_s),
        "reservation": log1p((shadow_s - clock_s) / unit_s),
        "day_sine": np.sin(day),
        "day_cosine": np.cos(day),
        "week_sine": np.sin(week),
        "week_cosine": np.cos(week),
    }


def _free_capacity(
    waiting: Sequence[WaitingJob], running: Sequence[RunningJob], clock_s: float, setting: Mapping[str, Any]
) -> tuple[int, list[int], float, int]:
    """Parts free now and after every horizon; when the longest waiting job will fit, and what is left beside it."""
    size = parts_of(setting["processors"])
    held = np.array([parts_of(one.processors) for one in running], np.int64)
    ends_s = np.array([max(one.expected_end_s, clock_s) for one in running])
    free = size - int(held.sum())
    if free < 0:
        raise PolicyInputError(
            "more processors run than there are", where=f"{held.sum() / PARTS:g} of {size / PARTS:g}"
        )
    tick_s, unit_s = setting["tick_s"], setting["time_unit_s"]
    horizons_s = [clock_s + round(horizon * unit_s / tick_s) * tick_s for horizon in HORIZONS]
    free_after = [free + int(held[ends_s <= until_s].sum()) for until_s in horizons_s]
    needed = min(parts_of(waiting[0].processors), size)
    _, shadow_s, extra = reservation(needed, running, clock_s, setting)
    return free, free_after, shadow_s, extra


def _counts(visible: Sequence[WaitingJob], of: Sequence[WaitingJob] | Sequence[RunningJob]) -> np.ndarray:
    """[visible] log(1 + how many of `of` belong to the job's user) / 4."""
    total: dict[str, int] = {}
    for one in of:
        if one.user is not None:
            total[one.user] = total.get(one.user, 0) + 1
    found = [0 if one.user is None else total.get(one.user, 0) for one in visible]
    return np.asarray(np.log1p(found) / 4.0)


def _slowdown(wait_s: np.ndarray, run_s: np.ndarray, floor_s: float) -> np.ndarray:
    return np.asarray(np.log(np.maximum((wait_s + run_s) / np.maximum(run_s, floor_s), 1.0)))
