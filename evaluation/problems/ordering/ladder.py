"""The ladder of a queue: the choice between the best fixed rule of the past weeks, a default order, and better ones.

The choice is made by exact replay of the weeks before the anchor, which are known at that time: of every rule, with
EASY backfilling and without, and of every member of a small weighted family (`twin.ordering.predicted`). The first rung
is the rule with the least mean bounded slowdown there. Weeks with hardly any waits are not informative about higher
load; so the same weeks are also replayed with their jobs arriving in less time (`PACES`). In such weeks all rules are
almost equal, and the best of them is best by chance: the second rung is an order tuned on another log (`USUAL`:
smallest predicted area first, with the exponents of the learned index). It replaces the rule if it satisfies the
constraints and is no worse than the rule in the mean over paces. Any other rule or member of the family replaces the
current rung only if

* its 99th percentile of waits is at most `MOST_P99` times the first rung's, at every pace, and users are treated as
  evenly (`LEAST_FAIR`): constraints, not goals;
* the logarithm of the ratio of the two mean slowdowns, half week by half week and the mean over paces, is significantly
  below zero: the upper end of its interval (Student's t, 95 %, widened for the number tried) lies below zero;
* in the original weeks it is not worse than by `MOST_WORSE`.

Otherwise the current rung stays. Constraints are relative to the rule, whichever rung is current.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering.fixed_orders import name_of, play_predicted, words_of
from evaluation.problems.ordering.playing import (
    BEST_RULE,
    BLOCK_DAYS,
    EASY,
    LADDER,
    OrderPolicy,
    rule_policies,
)
from evaluation.problems.ordering.weeks import TestWeek, cut_week, earlier, warm_earlier
from twin.ordering.population import DAY_S
from twin.ordering.population_cutoff import known_by
from twin.ordering.predicted import PredictedOrder
from twin.ordering.replay import replay
from twin.ordering.rules import LOGGED_ORDER, RULES, Rule
from twin.ordering.slowdown import bounded_slowdown
from twin.ordering.types import Jobs, Pool

MOST_P99 = 1.05
"""Times the rule's 99th percentile of waits that a member of the family may have."""
LEAST_FAIR = 0.9
"""Times the rule's fairness between users that it must have."""
MOST_WORSE = 0.01
"""Logarithm of the slowdown by which it may be worse in the weeks as they were."""
PACES = (1.0, 0.75, 0.5)
"""Parts of their time in which the past weeks' jobs arrive; the first: as they did."""
USUAL = PredictedOrder(1.0, 1.0, 0.06, reserves=False)
"""The default order, replaced only by evidence from past weeks; tuned on KTH."""
WEEK_DAYS = 7
RUN_WEIGHTS = ((0.0, 0.0), (1.0, 0.0), (0.5, 0.5), (1.0, 1.0))
AGEINGS = (0.06, 0.5)
_LEVEL = 0.95

Play = Callable[[TestWeek], np.ndarray]
"""A week -> [jobs] the start of every job on the week's clock."""


class OrderCandidate(NamedTuple):
    """An order that may be chosen."""

    name: str
    words: str
    play: Play
    is_rule: bool


class OrderOutcome(NamedTuple):
    """What came of a candidate in the past weeks; leaves [jobs that count, at every pace]."""

    slowdown: np.ndarray
    wait_s: np.ndarray
    block: np.ndarray  # half weeks by the calendar, as the jobs really arrived
    agent: np.ndarray
    pace: np.ndarray  # int: place in `PACES`

    def at(self, pace: int) -> "OrderOutcome":
        """The part at one pace."""
        return OrderOutcome(*(leaf[self.pace == pace] for leaf in self))


class Ladder(NamedTuple):
    """Policies to evaluate, and the choice among them.

    Attributes:
        policies: every published rule; where a choice could be made, `best_rule` and `ladder` too.
        notes: the result of every anchor's ladder, as sentences.
        last: names of the orders chosen at the last anchor, `best_rule` and `ladder`; empty where there was no choice.
    """

    policies: list[OrderPolicy]
    notes: list[str]
    last: dict[str, str]


class ChosenOrder(NamedTuple):
    """What the ladder of one anchor came to."""

    rule: str
    order: str
    gain: float  # mean logarithm of the held rung's slowdown over that of the best other
    low: float  # how low it may be
    words: str


def family() -> list[PredictedOrder]:
    """The members: weights of run time and width, ageing, with predicted run times and with requests."""
    return [
        PredictedOrder(run_weight, width_weight, ageing, predicts, reserves)
        for predicts, reserves in ((True, True), (True, False), (False, False))
        for run_weight, width_weight in RUN_WEIGHTS
        for ageing in (AGEINGS if run_weight else AGEINGS[:1])
    ]


def candidates(pool: Pool) -> list[OrderCandidate]:
    """Every published rule, with EASY and without, then the family; the logged order is no rule to hand over."""
    rules = [
        OrderCandidate(
            f"{rule.name}{EASY}" if easy else rule.name,
            f"{rule.description}, {'EASY backfilling' if easy else 'no backfilling'}",
            partial(_play_rule, rule, Pool(pool.processors, easy)), True,
        )
        for easy in (True, False)
        for rule in RULES
        if rule is not LOGGED_ORDER
    ]  # fmt: skip
    easy = Pool(pool.processors, easy=True)
    members = [
        OrderCandidate(name_of(order), words_of(order), partial(play_predicted, order, easy), False)
        for order in family()
    ]
    return [*rules, *members]


def _play_rule(rule: Rule, pool: Pool, week: TestWeek) -> np.ndarray:
    """The exact replay; arrivals count from the first job, as the rules of a formula in it expect."""
    first_s = min(week.jobs.arrival_s[0], 0.0)
    jobs, warm = earlier(week.jobs, first_s), warm_earlier(week.warm, first_s)
    return np.asarray(replay(jobs, pool, rule, warm=warm).start_s + first_s)


def past_weeks(jobs: Jobs, pool: Pool, anchor: int, num_days: int, config: WeeksConfig) -> list[TestWeek]:
    """The whole weeks of the training days before an anchor, as they were known then.

    Args:
        jobs: of the archive; later events are not used.
        pool: the processors.
        anchor: days since 1970 (UTC).
        num_days: training days before it.
        config: for how weeks begin and drain.
    """
    known = known_by(jobs, anchor * DAY_S - jobs.origin_us / 1e6)
    start_s = known.logged_start_s
    firsts = range(anchor - num_days // WEEK_DAYS * WEEK_DAYS, anchor, WEEK_DAYS)
    settings = WeeksConfig(num_test_days=WEEK_DAYS, num_drain_days=config.num_drain_days)
    weeks = [cut_week(known, pool, start_s, first, settings)[0] for first in firsts]
    return [week for week in weeks if week.counted.any()]


def seen_in(weeks: Sequence[TestWeek], play: Play, paces: Sequence[float] = PACES[:1]) -> OrderOutcome:
    """What comes of a candidate in some weeks; a job that never starts counts as waiting until the week's end."""
    parts = []
    for number, pace in enumerate(paces):
        for week in weeks:
            played = hastened(week, pace)
            start_s = play(played)
            rows, jobs = np.flatnonzero(week.counted), played.jobs
            begun_s = np.where(np.isnan(start_s[rows]), week.span_s[1] - week.span_s[0], start_s[rows])
            wait_s = np.maximum(begun_s - jobs.arrival_s[rows], 0.0)
            block = (week.first_day * DAY_S + week.jobs.arrival_s[rows]) // (BLOCK_DAYS * DAY_S)
            slowdown = bounded_slowdown(wait_s, jobs.run_s[rows])
            parts.append((slowdown, wait_s, block, jobs.agent[rows], np.full(len(rows), number)))
    return OrderOutcome(*(np.concatenate(leaves) for leaves in zip(*parts, strict=True)))


def hastened(week: TestWeek, pace: float) -> TestWeek:
    """The week with its arrivals in a part of their time; waiting and running jobs at its beginning are unchanged."""
    arrival_s = week.jobs.arrival_s
    return week._replace(
        jobs=week.jobs._replace(arrival_s=np.where(arrival_s > 0.0, pace * arrival_s, arrival_s))
    )


def choose(weeks: Sequence[TestWeek], tried: Sequence[OrderCandidate]) -> ChosenOrder:
    """The best rule of the past weeks, and the chosen order above it.

    Args:
        weeks: that are past; at least one.
        tried: of `candidates`.
    """
    seen = {one.name: seen_in(weeks, one.play, PACES) for one in tried}
    rules = [one.name for one in tried if one.is_rule]
    rule = min(rules, key=lambda name: float(seen[name].at(0).slowdown.mean()))
    held = _held(seen, rule)
    able = [name for name in seen if name != held and (name == rule or _is_allowed(seen[name], seen[rule]))]
    if not able:
        reasons = "is worse in past weeks, has longer longest waits, or treats users less evenly"
        return ChosenOrder(rule, held, 0.0, 0.0, f"{held}: every other order {reasons}")
    best = max(able, key=lambda name: gain_of(seen[name], seen[held], len(seen))[0])
    gain, low = gain_of(seen[best], seen[held], len(seen))
    if low <= 0.0:
        words = f"{held}: the best other, {best}, has {_percent(gain)} less slowdown, perhaps {_percent(low)}"
        return ChosenOrder(rule, held, gain, low, words)
    words = f"{best}: {_percent(gain)} less slowdown than {held}, at least {_percent(low)}, in past weeks"
    return ChosenOrder(rule, best, gain, low, words)


def _held(seen: Mapping[str, OrderOutcome], rule: str) -> str:
    """The rung from which others are looked at: the usual order, or the rule where past weeks speak against that."""
    usual = seen.get(name_of(USUAL))
    if usual is None or not _is_allowed(usual, seen[rule]) or gain_of(usual, seen[rule], 1)[0] < 0.0:
        return rule
    return name_of(USUAL)


def _is_allowed(seen: OrderOutcome, held: OrderOutcome) -> bool:
    """Whether an order keeps to the constraints."""
    if gain_of(seen.at(0), held.at(0), 1)[0] < -MOST_WORSE:
        return False
    pairs = [(seen.at(number), held.at(number)) for number in np.unique(held.pace)]
    longest = [[float(np.quantile(one.wait_s, 0.99)) for one in pair] for pair in pairs]
    if any(mine > MOST_P99 * max(theirs, 1.0) for mine, theirs in longest):
        return False
    return all(fairness(mine) >= LEAST_FAIR * fairness(theirs) for mine, theirs in pairs)


def fairness(seen: OrderOutcome) -> float:
    """Jain's index of the users' mean slowdowns; 1 where no user is known."""
    known = seen.agent >= 0
    if not known.any():
        return 1.0
    _, user = np.unique(seen.agent[known], return_inverse=True)
    each = np.bincount(user, weights=seen.slowdown[known]) / np.bincount(user)
    return float(each.sum() ** 2 / (len(each) * (each**2).sum()))


def gain_of(seen: OrderOutcome, held: OrderOutcome, num_tried: int) -> tuple[float, float]:
    """Mean over half weeks, and over paces within each, of ln(held slowdown / slowdown); its lower end, minus infinity
    of fewer than three half weeks."""
    blocks, place = np.unique(held.block, return_inverse=True)
    paces, row = np.unique(held.pace, return_inverse=True)
    cell, num_cells = place * len(paces) + row, len(blocks) * len(paces)
    counts = np.bincount(cell, minlength=num_cells)
    mine, theirs = (
        np.bincount(cell, weights=one.slowdown, minlength=num_cells) / np.maximum(counts, 1)
        for one in (seen, held)
    )
    ratio = np.where(counts > 0, np.log(np.maximum(theirs, 1.0)) - np.log(np.maximum(mine, 1.0)), 0.0)
    each = ratio.reshape(len(blocks), len(paces)).mean(axis=1)
    gain = float(each.mean())
    if len(blocks) < 3:
        return gain, -np.inf
    level = 1.0 - (1.0 - _LEVEL) / max(1.0, np.log2(max(num_tried, 2)))
    error = float(np.std(each, ddof=1)) / np.sqrt(len(blocks))
    return gain, float(gain - stdtrit(len(blocks) - 1, level) * error)


def _percent(gain: float) -> str:
    return f"{100.0 * (1.0 - np.exp(-gain)):.0f} %" if np.isfinite(gain) else "unknown"


def rules_and_ladder(
    jobs: Jobs, pool: Pool, anchors: Sequence[int], num_days: int, config: WeeksConfig
) -> Ladder:
    """Every published rule; the best one in every anchor's past weeks; and the choice of its ladder.

    Args:
        jobs: of the archive.
        pool: the processors.
        anchors: days since 1970 (UTC).
        num_days: training days before each.
        config: of the weeks.

    Returns:
        The policies; without a whole week of training days the rules alone.
    """
    past = [past_weeks(jobs, pool, anchor, num_days, config) for anchor in anchors]
    if not all(past):
        note = "ladder: no whole week with jobs among the training days, so no choice"
        return Ladder(rule_policies(pool), [note], {})
    tried = candidates(pool)
    found = [choose(weeks, tried) for weeks in past]
    plays = {one.name: one.play for one in tried}
    rules, orders = ([plays[getattr(one, part)] for one in found] for part in ("rule", "order"))
    words = "that rule, or an order under predicted run times that was surely better in those weeks"
    policies = [
        *rule_policies(pool),
        OrderPolicy(
            BEST_RULE, "baseline", "the published rule that was best in the training weeks",
            (partial(_play_chosen, rules),),
        ),
        OrderPolicy(LADDER, "trained", words, (partial(_play_chosen, orders),)),
    ]  # fmt: skip
    notes = [f"ladder of anchor {number}: {one.words}" for number, one in enumerate(found)]
    return Ladder(policies, notes, {BEST_RULE: found[-1].rule, LADDER: found[-1].order})


def _play_chosen(by_anchor: Sequence[Play], weeks: Sequence[TestWeek]) -> list[np.ndarray]:
    return [by_anchor[week.anchor](week) for week in weeks]
