"""How much is in use at once, from intervals that hold it. What ends at an instant leaves before what begins."""

import numpy as np


def use_over_time(
    begin_s: np.ndarray, end_s: np.ndarray, amount: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Instants in order and the use from each on, two changes an interval; both `[2 * intervals]`.

    Args:
        begin_s, end_s: [intervals] from when to when each holds its amount.
        amount: [intervals] at least 0.
    """
    times_s, change = np.concatenate([begin_s, end_s]), np.concatenate([amount, -amount])
    order = np.lexsort((change, times_s))
    return times_s[order], np.cumsum(change[order])


def most_at_once(begin_s: np.ndarray, end_s: np.ndarray, amount: np.ndarray | None = None) -> float:
    """The largest use; the number of intervals where no amount is given. Arguments as of `use_over_time`."""
    held = np.ones(len(begin_s)) if amount is None else amount
    return float(use_over_time(begin_s, end_s, held)[1].max(initial=0.0))
