"""The ladder of a queue: the choice between the best fixed rule of the past weeks, a learned index, and other orders.

The choice is made by exact replay of weeks before the anchor, which are known at that time (`past_weeks`).

1. *The best rule*: the published rule, with EASY backfilling or without, or EASY++, of the least mean bounded slowdown
   in the whole weeks of the training days.
2. *The index* (`USUAL`): run times are predicted from requests and users' finished jobs. Every past week is played
   under a predictor of days before that week. It is not tested but estimated: to separate gains of some percent from
   none takes half a year of weeks, so what it gained on the logs it was settled on (`GAIN_ELSEWHERE`) is the prior,
   past weeks are the evidence, and the index replaces the rule where the posterior mean is above zero and the
   constraints are satisfied.
3. *Any other order*: another rule, a member of the weighted family (`twin.ordering.predicted`), an index with other
   exponents. It replaces the current rung where the lower end of the interval of its gain (Student's t, 95 %, widened
   for the number tried) is above zero, it satisfies the constraints, and it is no worse in the weeks as they were.

All orders are played in the newest weeks; the best `NUM_FINALISTS` of them, the rule and the index in the older ones
too. Constraints are relative to the rule, whichever rung is current: the 99th percentile of waits, and fairness between
users. They exclude an order only where past weeks surely show harm (`refereeing`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from evaluation.jobs.unfinished import Unfinished
from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering.fixed_orders import published_policies
from evaluation.problems.ordering.order_candidates import (
    NEWEST,
    USUAL,
    OrderCandidate,
    candidates,
    index_candidates,
    past_indices,
    play_of,
)
from evaluation.problems.ordering.past_weeks import (
    OrderOutcome,
    Play,
    known_at,
    num_refereed_days,
    past_weeks,
    seen_in,
    together,
)
from evaluation.problems.ordering.playing import BEST_RULE, EASY, EASY_PREDICTED, LADDER, OrderPolicy
from evaluation.problems.ordering.refereeing import gain_of, is_allowed
from evaluation.problems.ordering.weeks import TestWeek
from offline_rl.ordering.index import Index
from twin.ordering.types import Jobs, Pool

GAIN_ELSEWHERE = (0.05, 0.15)
"""Mean and standard deviation of the gain of `USUAL` over the best rule on other logs, as a prior. In five later weeks
it was .08 in the mean (logarithms; .04 with half the weight of haste), with a deviation of .24, over 21 pairs of a log
and an anchor: KTH and seven made centres. Half of it: an index stays out where past weeks do not speak for it."""
MOST_WORSE = 0.01
"""Gain over the rule that any other order loses at most in the weeks as they were."""
CHOOSING = "choose among rules, index and predictions in past weeks"
"""Name of the stage."""
NUM_FINALISTS = 2
"""Orders that are played in the older weeks too."""
IndexOf = Callable[[int], Index | None]
"""Number of an anchor -> the index of its training days."""


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
    gain: float  # of the order over the rule in past weeks
    words: str


def choose(
    training: Sequence[TestWeek], weeks: Sequence[TestWeek], tried: Sequence[OrderCandidate], pool: Pool
) -> ChosenOrder:
    """The best rule of the training weeks, and the chosen order above it.

    Args:
        training: the whole weeks of the training days; at least one.
        weeks: in which orders are held against each other, in order of time; at least one.
        tried: the orders.
        pool: the processors.
    """
    rules = [one for one in tried if one.is_rule]
    mean = {one.name: float(seen_in(training, one.play).slowdown.mean()) for one in rules}
    rule = min(mean, key=mean.__getitem__)
    older, newest = weeks[:-NEWEST], weeks[-NEWEST:]
    seen = {one.name: seen_in(newest, one.play, pool) for one in tried if _may_win(one, rule)}
    if older:
        best = sorted(seen, key=lambda name: -gain_of(seen[name], seen[rule]).mean)[:NUM_FINALISTS]
        final = {rule, USUAL, *best}
        seen = {
            one.name: together([seen_in(older, one.play, pool), seen[one.name]])
            for one in tried
            if one.name in final and one.name in seen
        }
    return _climb(seen, rule, len(tried))


def _may_win(one: OrderCandidate, rule: str) -> bool:
    """A rule without backfilling can be the best one of the training weeks; else it is not held against others."""
    return not one.is_rule or one.name.endswith((EASY, EASY_PREDICTED)) or one.name == rule


def _climb(seen: Mapping[str, OrderOutcome], rule: str, num_tried: int) -> ChosenOrder:
    """From rung to rung."""
    able = [name for name in seen if name == rule or is_allowed(seen[name], seen[rule])]
    harm = "surely has longer longest waits in past weeks, or treats users less evenly"
    held, words = rule, f"{rule}: {USUAL} {harm}"
    if USUAL not in seen:
        words = f"{rule}: too few jobs ended before the past weeks to learn run times from"
    elif USUAL in able:
        gain = gain_of(seen[USUAL], seen[rule])
        expected = gain.shrunk(*GAIN_ELSEWHERE)
        held = USUAL if expected > 0.0 else rule
        words = (
            f"{held}: {USUAL} has {_percent(gain.mean)} slowdown than {rule} in {gain.num_blocks} past half weeks, "
            f"{_percent(expected)} with what is known of other logs"
        )
    others = {
        name: gain_of(seen[name], seen[held])
        for name in able
        if name != held
        and (name == rule or gain_of(seen[name].at(False), seen[rule].at(False)).mean >= -MOST_WORSE)
    }
    if others:
        best = max(others, key=lambda name: others[name].low(num_tried))
        low = others[best].low(num_tried)
        if low > 0.0:
            share = _percent(others[best].mean)
            words = f"{best}: {share} slowdown than {held}, surely {_percent(low)}, in past weeks"
            held = best
    return ChosenOrder(rule, held, gain_of(seen[held], seen[rule]).mean, words)


def _percent(gain: float) -> str:
    if not np.isfinite(gain):
        return "an unknown"
    return f"{100.0 * abs(1.0 - np.exp(-gain)):.0f} % {'less' if gain >= 0.0 else 'more'}"


def choice_at(
    known: Jobs, pool: Pool, anchor: int, num_days: int, config: WeeksConfig, seed: int
) -> ChosenOrder | None:
    """The ladder of one anchor; None without a whole week with jobs among the training days.

    Args:
        known: the jobs as they were known at the anchor (`known_at`; `past` of a twin whose training ends there).
        pool: the processors.
        anchor: days since 1970 (UTC).
        num_days: training days before it.
        config: for how weeks drain.
        seed: of the indices of past weeks.
    """
    training = past_weeks(known, pool, anchor, num_days, config)
    if not training:
        return None
    weeks = past_weeks(known, pool, anchor, num_refereed_days(known, anchor), config)
    by_day = past_indices(known, pool, weeks, num_days, seed) if weeks else {}
    tried = candidates(pool) + (index_candidates(pool, by_day) if by_day else [])
    return choose(training, weeks or training, tried, pool)


def choices_at(
    jobs: Jobs, pool: Pool, anchors: Sequence[int], config: WeeksConfig, seed: int, keep: Unfinished
) -> list[ChosenOrder | None]:
    """[anchors] `choice_at` of each, a unit of `keep`; events after an anchor are not used."""

    def choice(anchor: int) -> ChosenOrder | None:
        return choice_at(known_at(jobs, anchor), pool, anchor, config.num_train_days, config, seed)

    return [kept_choice(keep, anchor, partial(choice, anchor)) for anchor in anchors]


def kept_choice(keep: Unfinished, anchor: int, make: Callable[[], ChosenOrder | None]) -> ChosenOrder | None:
    """The ladder of an anchor (see `choice_at`): loaded, or climbed and saved."""
    found = keep.record(f"ladder, day {anchor}", lambda: {LADDER: make()}, dict)[LADDER]
    return None if found is None else ChosenOrder(*found)


def rules_and_ladder(pool: Pool, chosen: Sequence[ChosenOrder | None], index_of: IndexOf) -> Ladder:
    """Every published rule; the best one in every anchor's training weeks; and what its ladder chose.

    Args:
        pool: the processors.
        chosen: [anchors] as `choice_at`.
        index_of: the index that an anchor's ladder plays where it chose one; where there is none, the rule stays.

    Returns:
        The policies; where an anchor has no choice the rules alone.
    """
    found = [one for one in chosen if one is not None]
    if len(found) < len(chosen):
        note = "ladder: no whole week with jobs among the training days, so no choice"
        return Ladder(published_policies(pool), [note], {})
    plays = {one.name: one.play for one in candidates(pool)}
    rules, orders = [plays[one.rule] for one in found], []
    for number, one in enumerate(found):
        play = play_of(one.order, partial(index_of, number), pool)
        found[number] = one if play is not None else one._replace(order=one.rule)
        orders.append(play or plays[one.rule])
    words = "that rule, or an index of predicted run times or another order that past weeks speak for"
    policies = [
        *published_policies(pool),
        OrderPolicy(
            BEST_RULE,
            "baseline",
            "the published rule that was best in the training weeks",
            (partial(_play_chosen, rules),),
        ),
        OrderPolicy(LADDER, "trained", words, (partial(_play_chosen, orders),)),
    ]
    notes = [f"ladder of anchor {number}: {one.words}" for number, one in enumerate(found)]
    return Ladder(policies, notes, {BEST_RULE: found[-1].rule, LADDER: found[-1].order})


def _play_chosen(by_anchor: Sequence[Play], weeks: Sequence[TestWeek]) -> list[np.ndarray]:
    return [by_anchor[week.anchor](week) for week in weeks]
