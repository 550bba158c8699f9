"""The orders that a ladder chooses among: published rules, a weighted family, and learned indices."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from evaluation.problems.ordering.fixed_orders import EASY_PLUS_PLUS, name_of, play_predicted, words_of
from evaluation.problems.ordering.index_orders import (
    index_exponents,
    index_name,
    index_words,
    play_index,
    play_own_index,
)
from evaluation.problems.ordering.past_weeks import Play
from evaluation.problems.ordering.playing import EASY, play_rule
from evaluation.problems.ordering.weeks import TestWeek
from offline_rl.ordering.index import SMITH, Index
from offline_rl.ordering.learning import learn_index, samples_before
from twin.ordering.predicted import PredictedOrder
from twin.ordering.rules import LOGGED_ORDER, RULES
from twin.ordering.types import Jobs, OrderingError, Pool

INDICES = (SMITH, np.array([0.5, 1.0, 0.0, 1.0, 0.06]))
"""Exponents of the indices: Smith's, and half the weight of haste."""
USUAL = index_name(INDICES[0])
"""The order that replaces the rule unless past weeks speak against it."""
NEWEST = 4
"""Weeks in which all orders are played, those right before an anchor; they share one index."""
WEIGHTS = ((1.0, 0.0), (0.5, 0.5), (1.0, 1.0))
"""Of run time and width. Ageing by .5 a day was worse than by .06 in every member, on KTH's first half and zegox."""
AGEING = 0.06


class OrderCandidate(NamedTuple):
    """An order that may be chosen."""

    name: str
    words: str
    play: Play
    is_rule: bool


def family() -> list[PredictedOrder]:
    """The members: by predicted run times and by requests; first come, first served, predictions ordering the
    backfilling alone; and smallest predicted area first, its reservations by predictions too."""
    return [
        *(
            PredictedOrder(*weights, AGEING, predicts, False)
            for predicts in (True, False)
            for weights in WEIGHTS
        ),
        PredictedOrder(0.0, 0.0, AGEING, True, False),
        PredictedOrder(1.0, 1.0, AGEING, True, True),
    ]


def candidates(pool: Pool) -> list[OrderCandidate]:
    """Every published rule, with EASY and without, EASY++, the family; the logged order is no rule to hand over."""
    rules = [
        OrderCandidate(
            f"{rule.name}{EASY}" if easy else rule.name,
            f"{rule.description}, {'EASY backfilling' if easy else 'no backfilling'}",
            partial(play_rule, rule, Pool(pool.processors, easy)),
            True,
        )
        for easy in (True, False)
        for rule in RULES
        if rule is not LOGGED_ORDER
    ]
    easy = Pool(pool.processors, easy=True)
    members = [
        OrderCandidate(
            name_of(order), words_of(order), partial(play_predicted, order, easy), order is EASY_PLUS_PLUS
        )
        for order in (EASY_PLUS_PLUS, *family())
    ]
    return [*rules, *members]


def index_candidates(pool: Pool, by_day: Mapping[int, Index]) -> list[OrderCandidate]:
    """The indices, each past week under the predictor of its first day; none where a week has no predictor."""
    return [
        OrderCandidate(index_name(one), index_words(one), partial(play_own_index, by_day, one, pool), False)
        for one in INDICES
    ]


def play_of(name: str, index_of: Callable[[], Index | None], pool: Pool) -> Play | None:
    """An order by its name, an index with the predictor that `index_of` gives; None where it gives none."""
    exponents = index_exponents(name)
    if exponents is None:
        return next((one.play for one in candidates(pool) if one.name == name), None)
    index = index_of()
    return None if index is None else partial(play_index, index._replace(exponents=exponents), pool)


def past_indices(
    jobs: Jobs, pool: Pool, weeks: Sequence[TestWeek], num_days: int, seed: int
) -> dict[int, Index]:
    """First day of a week -> an index of days before: one for the newest `NEWEST` weeks, and one for the older ones.

    Args:
        jobs: as they were known after the weeks.
        pool: the processors.
        weeks: in order of time.
        num_days: days that an index learns from, fewer where the log begins later.
        seed: of the predictors.

    Returns:
        The indices; empty where too few jobs ended before a week.
    """
    by_day: dict[int, Index] = {}
    for part in filter(None, (weeks[:-NEWEST], weeks[-NEWEST:])):
        try:
            index, _ = learn_index(seed, samples_before(jobs, pool, part[0].first_day, num_days))
        except OrderingError:
            return {}
        by_day |= {week.first_day: index for week in part}
    return by_day


def learned_index(jobs: Jobs, pool: Pool, anchor: int, num_days: int, seed: int) -> Index | None:
    """An index of the days before an anchor; None where too few jobs ended on them."""
    try:
        return learn_index(seed, samples_before(jobs, pool, anchor, num_days))[0]
    except OrderingError:
        return None
