"""What a placement question is while it is answered: who is asked, what the policy says, what is answered, and why."""

from dataclasses import dataclass
from typing import NamedTuple

from offline_rl.runner import Decision
from offline_rl.serving.choosing import Choice, ten_point_scores
from offline_rl.serving.cluster import CandidateView
from offline_rl.serving.policies import Question, ServedPolicy
from offline_rl.serving.queries import PlacementQuery

POLICY, FALLBACK, EXPLORE, ONLY = "policy", "fallback", "explore", "only"
SLOW, BUSY, RAISED, UNABLE, NOTHING = "deadline", "busy", "error", "no_known_node", "nothing_feasible"
OVERLOAD = "overload"


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """A question under way, as it was when it was asked.

    Attributes:
        query: In the caller's words.
        view: The candidates.
        asked_s: When, seconds since 1970.
        policy: In use then; another one may have taken its place before the answer.
        question: What that policy is asked.
        fallback: What is answered where it does not.
    """

    query: PlacementQuery
    view: CandidateView
    asked_s: float
    policy: ServedPolicy
    question: Question
    fallback: Choice


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered.

    Attributes:
        node: The named node; None where no candidate is feasible.
        scores: 0 to 10 of every candidate.
        arm: Which of policy, fallback and exploration answered.
        reason: Why the fallback answered in the policy's place; empty if it did not.
        view: The candidates as they were.
        decision: What the policy decided; None where it had not decided before the answer.
    """

    node: str | None
    scores: list[int]
    arm: str
    reason: str
    view: CandidateView
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The policy's reply; `choice` is None where it did not answer, and `reason` is the cause."""

    choice: Choice | None = None
    decision: Decision | None = None
    reason: str = ""
    took_s: float | None = None


class ReportedEvents(NamedTuple):
    """What came of the events of a call.

    Attributes:
        known, unknown: How many were about requests that the server holds, and about others.
        refused: Index -> why the event cannot be.
    """

    known: int
    unknown: int
    refused: dict[int, str]


def answer_of(arm: str, choice: Choice, named: int, reason: str, view: CandidateView) -> Answer:
    """The answer that names one of the candidates, with the scores of a choice."""
    return Answer(view.names[named], ten_point_scores(choice, named), arm, reason, view)
