"""The endpoint of a queue: `POST /order` asks which of the waiting jobs start now.

    {"waiting": [{"job": "j1", "arrival": 1767225600, "processors": 4, "requested_s": 3600, "user": "ann"}],
     "running": [{"job": "j0", "processors": 8, "started": 1767225000, "requested_s": 7200, "user": "bob"}],
     "ended": [{"user": "ann", "run_s": 120, "requested_s": 600}], "clock": 1767225660}

`ended` are the jobs that have ended since the last question, oldest first: from them the server keeps its books of
users and their run times; one that ended within the second counts as 1 s, as in training. A job is predicted in the
first question that names it, and keeps that; what runs is known again by its name; what it asks for is a bound at all
times. The answer holds

* `start`: the jobs that start now, in order;
* `arm`: which of them decided, the policy, or the rule that stands in for it: in shadow mode, beyond the canary's share
  of the questions, and where the policy fails or is late;
* `policy_start`: what the policy would start, whoever answered; null where it failed or was late;
* `too_large`: jobs that ask for more processors than the machine has, and never start;
* `predicted_s`: the run times that the rules of the bundle go by: predictions, or, where it predicts none, requests.
  A learned index goes by its own, which are not told.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from offline_rl.errors import PolicyInputError
from offline_rl.runner.queue import QueuePolicy
from offline_rl.runner.queue_descriptions import RunningJob, UserPast, WaitingJob
from offline_rl.serving.answers import BUSY, POLICY, RAISED, SLOW
from offline_rl.serving.config import ServiceConfig
from offline_rl.serving.errors import QueryError
from offline_rl.serving.metrics import Metrics
from offline_rl.serving.notices import Notices
from offline_rl.serving.queries import instant_of, list_of, number_of, object_of, text_of
from offline_rl.serving.worker import Worker

RULE = "rule"
MAX_JOBS = 10_000
"""Waiting, or running, in a question."""
MAX_USERS = 100_000
SHORTEST_RUN_S = 1.0
"""Of a job that has ended, as `twin.ordering.jobs` reads logs."""
LEAST = 1e-6
"""Least amount that counts as more than 0."""
_KEYS = ("waiting", "running", "ended", "clock")
_WAITING_KEYS = ("job", "arrival", "processors", "requested_s", "user")
_RUNNING_KEYS = ("job", "processors", "started", "requested_s", "user")
_ENDED_KEYS = ("user", "run_s", "requested_s")


class QueueReply(NamedTuple):
    """The policy's reply on a queue.

    Attributes:
        places: Of the jobs that it would start; None where it did not answer.
        reason: Why it did not answer; empty if it did.
    """

    places: list[int] | None
    reason: str = ""


class QueueDoor:
    """What a server keeps of a queue between questions. Belongs to one event loop.

    Args:
        config: When the rule answers instead of the policy: `deadline_s`, `shadow`, `canary`; `seed` of the draws.
        metrics: Where answers are counted.
    """

    def __init__(self, config: ServiceConfig, metrics: Metrics) -> None:
        self._config, self._metrics = config, metrics
        self._rng = np.random.default_rng(config.seed)
        self._users: dict[str, UserPast] = {}
        self._predicted_s: dict[str, float] = {}
        self._errors = Notices()

    async def order(self, policy: QueuePolicy, content: Any, now_s: float, worker: Worker) -> dict[str, Any]:
        """Answers the content of `POST /order`.

        Args:
            policy: In use.
            content: The question.
            now_s: Of the server's clock, where the question names no instant.
            worker: Runs the policy.

        Raises:
            QueryError: It is no question; says what, where, and what is allowed. Nothing is remembered of it then.
            PolicyInputError: The queue cannot be so.
        """
        begun_s = time.monotonic()
        asked = object_of(content, "the content", _KEYS)
        clock_s = instant_of(asked.get("clock"), "clock")
        clock_s = now_s if clock_s is None else clock_s
        ended = [
            _ended(one, f"ended[{place}]") for place, one in enumerate(list_of(asked.get("ended"), "ended"))
        ]
        names, waiting = _jobs(asked, "waiting", _WAITING_KEYS, "arrival")
        runs, running = _jobs(asked, "running", _RUNNING_KEYS, "started")
        if wide := policy.too_large(running):
            raise QueryError(
                f"the running job {runs[wide[0]]!r} is larger than the pool",
                where=f"running[{wide[0]}].processors: {running[wide[0]].processors:g}",
                allowed=f"at most the pool's {policy.setting['processors']:g} processors",
            )
        if both := set(names) & set(runs):
            raise QueryError("a job both waits and runs", where=min(both), allowed="each name once")
        users = _with_ended(self._users, ended, policy.setting["time_unit_s"])
        kept_s = self._predicted_s if policy.predicts else {}
        predicted_s = {
            name: min(kept_s.get(name) or _predicted_s(policy, job, users), job.requested_s)
            for name, job in zip(names, waiting, strict=True)
        }
        known = {
            name: min(kept_s.get(name, job.requested_s), job.requested_s)
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
        inputs = queue, held, users, clock_s
        # in a thread: other endpoints are answered meanwhile
        by_rule = await asyncio.to_thread(policy.starting_by_rule, *inputs)
        reply = await self._reply(partial(policy.starting, *inputs), begun_s, worker)
        arm = self._arm(reply)
        self._count(arm, by_rule, reply)
        starting = by_rule if arm == RULE or reply.places is None else reply.places
        self._users, self._predicted_s = users, predicted_s | known
        return {
            "start": [names[place] for place in starting],
            "arm": arm,
            "policy_start": None if reply.places is None else [names[place] for place in reply.places],
            "too_large": [names[place] for place in policy.too_large(queue)],
            "predicted_s": {name: predicted_s[name] for name in names},
        }

    def _arm(self, reply: QueueReply) -> str:
        """Who answers: the policy its share of the questions, where it can."""
        is_policys = self._rng.random() < self._config.share
        if is_policys and reply.places is None:
            self._metrics.fallbacks.labels(reply.reason).inc()
        return POLICY if is_policys and reply.places is not None else RULE

    def _count(self, arm: str, by_rule: list[int], reply: QueueReply) -> None:
        self._metrics.decisions.labels(arm).inc()
        if reply.places is not None:
            self._metrics.compared.inc()
            self._metrics.disagreements.inc(sorted(reply.places) != sorted(by_rule))

    async def _reply(self, question: Callable[[], list[int]], begun_s: float, worker: Worker) -> QueueReply:
        """The jobs that the policy would start, if it answers within the deadline."""
        deadline_s = self._config.deadline_s
        if worker.stalled(deadline_s):
            return QueueReply(None, BUSY)
        try:
            return QueueReply(await worker.run(question, begun_s + deadline_s - time.monotonic()))
        except TimeoutError:
            return QueueReply(None, SLOW)
        except PolicyInputError:
            raise
        except Exception as error:  # whatever the policy's libraries raise: the rule answers
            kind = type(error).__name__  # the text of an error may differ with every question
            self._errors.write(kind, f"the policy failed, the rule answers: {kind}: {error}"[:500])
            return QueueReply(None, RAISED)


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
        raise QueryError("too many jobs", where=f"{key}: {len(listed)}", allowed=f"{MAX_JOBS}")
    names, jobs = [], []
    for place, one in enumerate(listed):
        where = f"{key}[{place}]"
        fields = object_of(one, where, keys)
        name, since_s = (
            text_of(fields.get("job"), f"{where}.job"),
            instant_of(fields.get(since), f"{where}.{since}"),
        )
        if name is None or since_s is None:
            raise QueryError(
                f"{where} is missing", where=where, allowed=f"job: a text, and {since}: an instant"
            )
        names.append(name)
        processors, requested_s = (_amount(fields, size, where) for size in ("processors", "requested_s"))
        jobs.append(
            WaitingJob(since_s, processors, requested_s, text_of(fields.get("user"), f"{where}.user"))
        )
    twice, times = Counter(names).most_common(1)[0] if names else ("", 0)
    if times > 1:
        raise QueryError("a job stands twice", where=f"{key}: {twice}", allowed="each name once")
    return names, jobs


def _ended(one: Any, where: str) -> tuple[str, float, float]:
    fields = object_of(one, where, _ENDED_KEYS)
    user = text_of(fields.get("user"), f"{where}.user")
    if user is None:
        raise QueryError("whose job has ended is missing", where=f"{where}.user", allowed="a text")
    run_s = _amount(fields, "run_s", where, 0.0)
    return user, run_s or SHORTEST_RUN_S, _amount(fields, "requested_s", where)


def _amount(fields: Mapping[str, Any], key: str, where: str, least: float = LEAST) -> float:
    found = number_of(fields.get(key), f"{where}.{key}", lower=least, upper=1e12)
    if found is None:
        raise QueryError("a number is missing", where=f"{where}.{key}", allowed=f"{least:g} to 1e+12")
    return found
