"""From scores to an answer: which node, with what probability, and the 0-10 scores that kube-scheduler takes.

A question is answered by the *policy* (a share `canary` of the requests, drawn by the hash of their identity, so that a
request sent twice meets the same arm), by the *fallback* (the rest, and whatever the policy cannot answer), or, with
probability `explore`, by any feasible node. The probability that node a is answered is therefore

    p(a) = explore / n + (1 - explore) * (canary [a = policy's node] + (1 - canary) fallback(a))

and where the policy did not answer, `explore / n + (1 - explore) fallback(a)`; `fallback(a)` is 1 over the number of
equally good nodes. This is the propensity in the log.
"""

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from offline_rl.runner import Decision
from offline_rl.serving.cluster import CandidateView
from offline_rl.serving.extender import MAX_SCORE
from offline_rl.serving.fallbacks import Fallback

NO_NODE = -1


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to answer: scores of the candidates, and what it would name.

    Attributes:
        scores: [n], larger is better; comparable within this choice only.
        able: [n] bool: could be named.
        best: Position of the node it names; `NO_NODE` where it can name none.
        num_best: How many were equally good; the named one was drawn among them.
    """

    scores: np.ndarray
    able: np.ndarray
    best: int
    num_best: int = 1


def share_of(request_id: str) -> float:
    """A number in [0, 1) that belongs to a request: uniform over requests, the same at every call."""
    return (
        int.from_bytes(hashlib.blake2b(request_id.encode("utf-8", "replace"), digest_size=7).digest()) / 2**56
    )


def fallback_choice(fallback: Fallback, view: CandidateView, rng: np.random.Generator) -> Choice:
    """What the heuristic names: any of the best feasible nodes."""
    scores = fallback.scores(view)
    best = np.flatnonzero(view.feasible & (scores >= scores[view.feasible].max(initial=-np.inf)))
    if not len(best):
        return Choice(scores, view.feasible, NO_NODE)
    return Choice(scores, view.feasible, int(best[rng.integers(len(best))]), len(best))


def policy_choice(decision: Decision, position: np.ndarray, view: CandidateView) -> Choice:
    """What the policy names among the candidates; of equals the one that holds least.

    Args:
        decision: Over all nodes in the policy's input.
        position: [n] where each candidate stands among them, -1 where it is a stranger.
        view: The candidates.
    """
    if not len(decision.scores):
        return Choice(np.zeros(len(position)), np.zeros(len(position), bool), NO_NODE)
    scores = np.asarray(decision.scores)[position]
    able = (position >= 0) & np.asarray(decision.legal)[position] & view.feasible & np.isfinite(scores)
    if not able.any():
        return Choice(scores, able, NO_NODE)
    best = np.flatnonzero(able & (scores == scores[able].max()))
    return Choice(scores, able, int(best[np.argmin(view.num_held[best])]))


def rule_choice(
    decision: Decision, position: np.ndarray, view: CandidateView, rng: np.random.Generator
) -> Choice:
    """What a rule names in the place of a heuristic: any of the best; arguments as of `policy_choice`."""
    choice = policy_choice(decision, position, view)
    if choice.best == NO_NODE:
        return choice
    best = np.flatnonzero(choice.able & (choice.scores == choice.scores[choice.best]))
    return replace(choice, best=int(best[rng.integers(len(best))]), num_best=len(best))


def propensity(
    named: int, policy: Choice | None, fallback: Choice, *, canary: float, explore: float, num_feasible: int
) -> float:
    """Probability with which this node was the answer; `policy` is None where it did not answer."""
    by_fallback = 0.0
    scores, able = fallback.scores, fallback.able
    if fallback.best != NO_NODE and able[named] and scores[named] >= scores[fallback.best]:
        by_fallback = 1.0 / fallback.num_best
    share = 0.0 if policy is None else canary
    by_policy = 1.0 if policy is not None and policy.best == named else 0.0
    return explore / num_feasible + (1.0 - explore) * (share * by_policy + (1.0 - share) * by_fallback)


def ten_point_scores(choice: Choice, named: int) -> list[int]:
    """Scores from 0 to 10: the named node alone has 10, others 1 to 9 in proportion, what cannot be named 0."""
    points = np.zeros(len(choice.scores), int)
    able = choice.able
    if able.any():
        low, high = choice.scores[able].min(), choice.scores[able].max()
        part = (choice.scores[able] - low) / (high - low) if high > low else np.ones(able.sum())
        points[able] = 1 + np.floor((MAX_SCORE - 2) * part).astype(int)
    if named != NO_NODE:
        points[named] = MAX_SCORE
    return points.tolist()
