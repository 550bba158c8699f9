"""The door of a queue: `POST /order` asks which of the waiting jobs start now.

    {"waiting": [{"job": "j1", "arrival": 1767225600, "processors": 4, "requested_s": 3600, "user": "ann"}],
     "running": [{"job": "j0", "processors": 8, "started": 1767225000, "requested_s": 7200, "user": "bob"}],
     "ended": [{"user": "ann", "run_s": 120, "requested_s": 600}], "clock": 1767225660}

`ended` are the jobs that have ended since the last question, oldest first: from them the server keeps what it knows of
users and their run times. A job is predicted when it is first told of, and keeps that; what runs is known again by its
name. The answer names the jobs that start now, in order (`start`), who said so (`arm`: the policy, or the rule that
stands in for it where it fails or is late), and the run times by which they were ordered (`predicted_s`).
"""

import asyncio
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from offline_rl.errors import PolicyInputError
from offline_rl.runner.queue import QueuePolicy
from offline_rl.runner.queue_descriptions import RunningJob, UserPast, WaitingJob
from offline_rl.serving.asks import instant_of, list_of, mapping_of, number_of, text_of
from offline_rl.serving.errors import AskError

POLICY, RULE = "policy", "rule"
MAX_JOBS = 10_000
"""Waiting, or running, in a question."""
MAX_USERS = 100_000
_KEYS = ("waiting", "running", "ended", "clock")
_WAITING_KEYS = ("job", "arrival", "processors", "requested_s", "user")
_RUNNING_KEYS = ("job", "processors", "started", "requested_s", "user")
_ENDED_KEYS = ("user", "run_s", "requested_s")


class QueueDoor:
    """What a server keeps of a queue between questions. Belongs to one event loop.

    Args:
        deadline_s: Time after which the rule answers instead of the policy.
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._users: dict[str, UserPast] = {}
        self._predicted_s: dict[str, float] = {}
        self._late: asyncio.Future[list[int]] | None = None
        self._told = False

    async def order(self, policy: QueuePolicy, content: Any, now_s: float) -> dict[str, Any]:
        """Answers the content of `POST /order`.

        Args:
            policy: In use.
            content: The question.
            now_s: Of the server's clock, where the question names no instant.

        Raises:
            AskError: It is no question; says what, where, and what is allowed. Nothing is remembered of it then.
            PolicyInputError: The queue cannot be so.
        """
        begun_s = time.monotonic()
        asked = _object(content, "the content", _KEYS)
        clock_s = instant_of(asked.get("clock"), "clock")
        clock_s = now_s if clock_s is None else clock_s
        ended = [
            _ended(one, f"ended[{place}]") for place, one in enumerate(list_of(asked.get("ended"), "ended"))
        ]
        names, waiting = _jobs(asked, "waiting", _WAITING_KEYS, "arrival")
        runs, running = _jobs(asked, "running", _RUNNING_KEYS, "started")
        users = _with_ended(self._users, ended, policy.setting["time_unit_s"])
        predicted_s = {
            name: self._predicted_s.get(name) or _predicted_s(policy, job, users)
            for name, job in zip(names, waiting, strict=True)
        }
        known = {
            name: self._predicted_s.get(name, job.requested_s)
            for name, job in zip(runs, running, strict=True)
        }
        queue = [
            WaitingJob(job.arrival_s, job.processors, job.requested_s, job.user, predicted_s[name])
            for name, job in zip(names, waiting, strict=True)
        ]
        held = [
            RunningJob(
                job.processors,
                policy.expected_end_s(job.arrival_s, known[name], job.requested_s, clock_s),
                job.user,
            )
            for name, job in zip(runs, running, strict=True)
        ]
        arm, places = await self._starting(policy, (queue, held, users, clock_s), begun_s)
        self._users, self._predicted_s = users, predicted_s | known
        return {
            "start": [names[place] for place in places],
            "arm": arm,
            "predicted_s": {name: predicted_s[name] for name in names},
        }

    async def _starting(
        self,
        policy: QueuePolicy,
        told: tuple[Sequence[WaitingJob], Sequence[RunningJob], Mapping[str, UserPast], float],
        begun_s: float,
    ) -> tuple[str, list[int]]:
        """Who answers, and the places of the jobs that start."""
        by_rule = policy.starting_by_rule(*told)
        if self._late is not None and not self._late.done():
            return RULE, by_rule
        asking = asyncio.ensure_future(asyncio.to_thread(policy.starting, *told))
        done, _ = await asyncio.wait(
            {asking}, timeout=max(begun_s + self._deadline_s - time.monotonic(), 0.0)
        )
        if not done:
            self._late = asking
            return RULE, by_rule
        error = asking.exception()
        if error is None:
            return POLICY, asking.result()
        if isinstance(error, PolicyInputError):
            raise error
        self._say_once(f"the policy failed, the rule answers: {type(error).__name__}: {error}"[:500])
        return RULE, by_rule

    def _say_once(self, sentence: str) -> None:
        if not self._told:
            self._told = True
            print(f"schedtwin serve: {sentence}", file=sys.stderr, flush=True)


def _with_ended(
    users: Mapping[str, UserPast], ended: Sequence[tuple[str, float, float]], time_unit_s: float
) -> dict[str, UserPast]:
    """What is known of users after more jobs have ended; whose last one ended longest ago is forgotten first."""
    known = dict(users)
    for user, run_s, requested_s in ended:
        known[user] = known.pop(user, UserPast()).ended(run_s, requested_s, time_unit_s)
    for user in list(known)[: max(len(known) - MAX_USERS, 0)]:
        del known[user]
    return known


def _predicted_s(policy: QueuePolicy, job: WaitingJob, users: Mapping[str, UserPast]) -> float:
    past = UserPast() if job.user is None else users.get(job.user, UserPast())
    return policy.predicted_s(job.requested_s, past)


def _jobs(
    asked: Mapping[str, Any], key: str, keys: Sequence[str], since: str
) -> tuple[list[str], list[WaitingJob]]:
    """Names and descriptions of the jobs of a list; of running ones the arrival is the start."""
    listed = list_of(asked.get(key), key)
    if len(listed) > MAX_JOBS:
        raise AskError("too many jobs", where=f"{key}: {len(listed)}", allowed=f"{MAX_JOBS}")
    names, jobs = [], []
    for place, one in enumerate(listed):
        where = f"{key}[{place}]"
        said = _object(one, where, keys)
        name, since_s = (
            text_of(said.get("job"), f"{where}.job"),
            instant_of(said.get(since), f"{where}.{since}"),
        )
        if name is None or since_s is None:
            raise AskError(
                f"{where} is not told", where=where, allowed=f"job: a text, and {since}: an instant"
            )
        names.append(name)
        processors, requested_s = (_positive(said, size, where) for size in ("processors", "requested_s"))
        jobs.append(WaitingJob(since_s, processors, requested_s, text_of(said.get("user"), f"{where}.user")))
    twice = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
    if twice:
        raise AskError("a job stands twice", where=f"{key}: {min(twice)}", allowed="each name once")
    return names, jobs


def _ended(one: Any, where: str) -> tuple[str, float, float]:
    said = _object(one, where, _ENDED_KEYS)
    user = text_of(said.get("user"), f"{where}.user")
    if user is None:
        raise AskError("whose job has ended is not told", where=f"{where}.user", allowed="a text")
    return user, _positive(said, "run_s", where), _positive(said, "requested_s", where)


def _positive(said: Mapping[str, Any], key: str, where: str) -> float:
    found = number_of(said.get(key), f"{where}.{key}", lower=math.ulp(0.0), upper=1e12)
    if found is None:
        raise AskError("a number is missing", where=f"{where}.{key}", allowed="more than 0, to 1e+12")
    return found


def _object(content: Any, where: str, allowed: Sequence[str]) -> dict[str, Any]:
    said = mapping_of(content, where)
    if unknown := sorted(str(key)[:80] for key in said if key not in allowed):
        raise AskError(f"{where} has unknown keys", where=", ".join(unknown[:5]), allowed=", ".join(allowed))
    return said
