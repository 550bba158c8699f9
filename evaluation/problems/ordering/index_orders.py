"""The learned index as an order among others: its name, and how exact replay plays it.

`index(0.5,1,0,1,0.06)`: the exponents of `offline_rl.ordering.index` (haste, share, request, processors, and
ageing by the day). What it predicts run times with is learned from the days before, so a name stands for one predictor
at every anchor.
"""

import re
from collections.abc import Mapping

import numpy as np

from evaluation.problems.ordering.weeks import TestWeek
from logs_schema.calendar import DAY_S
from offline_rl.ordering.index import Index
from offline_rl.ordering.predicting import TIME_UNIT_S
from twin.ordering.rules import SAF
from twin.ordering.types import Pool
from twin.ordering.user_history_replay import past_of, replay_with_user_history

_NUMBER = r"(\d+\.?\d*(?:e-?\d+)?)"
_NAME = re.compile(rf"index\({','.join([_NUMBER] * 5)}\)")


def index_name(exponents: np.ndarray) -> str:
    """The name of an index, from its exponents."""
    return f"index({','.join(f'{one:g}' for one in exponents)})"


def index_exponents(name: str) -> np.ndarray | None:
    """[5] the exponents in a name; None of another order."""
    found = _NAME.fullmatch(name)
    return None if found is None else np.array([float(one) for one in found.groups()])


def index_words(exponents: np.ndarray) -> str:
    """The formula of an index."""
    a, b, c, d, e = (f"{one:g}" for one in exponents)
    return (
        f"{a} ln(expected haste) - {b} ln(expected run) - {c} ln(request) - {d} ln(processors) + {e} a day waited, "
        "highest first; EASY, smallest area first"
    )


def play_index(index: Index, pool: Pool, week: TestWeek) -> np.ndarray:
    """[jobs] the starts under an index, by exact replay with the whole queue seen; jobs are backfilled."""
    done = replay_with_user_history(
        week.jobs,
        Pool(pool.processors, easy=True),
        index.score(week.jobs, pool),
        past_of(week.whole, week.schedule_s, week.span_s[0], TIME_UNIT_S),
        time_unit_s=TIME_UNIT_S,
        ageing_per_s=index.exponents[-1] / DAY_S,
        backfill=SAF,
        warm=week.warm,
    )
    return done.start_s


def play_own_index(
    by_day: Mapping[int, Index], exponents: np.ndarray, pool: Pool, week: TestWeek
) -> np.ndarray:
    """The same, each week under the predictor of its first day."""
    return play_index(by_day[week.first_day]._replace(exponents=exponents), pool, week)
