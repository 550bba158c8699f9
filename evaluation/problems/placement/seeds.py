"""What came of the seeds of one policy, as one run, and how far they lie apart."""

from collections.abc import Sequence

import numpy as np

from evaluation.comparison.decisions import concatenate
from evaluation.comparison.entries import Run
from evaluation.comparison.metrics import Metric
from evaluation.comparison.shifts import TestDays
from evaluation.judges.descriptions import REPLAY
from evaluation.judges.judge import Evaluation


def spread_of(run: Run, shift: TestDays, metric: Metric) -> list[str]:
    """The spread of one policy's seeds, as a sentence; empty where the log has no values."""
    values = [metric.compute(decisions) for decisions in run.by_seed]
    known = [value for value in values if isinstance(value, float)]
    if not known:
        return []
    return [
        f"{run.policy}, {run.judge}, shift {shift.name}: {metric.name} from {min(known):.3f} to {max(known):.3f} "
        f"over {len(known)} seeds"
    ]


def overflow_of(run: Run, shift: TestDays) -> list[str]:
    """How many requests the judge's books had no slot for, as a sentence; empty where all found one."""
    if not run.num_overflow:
        return []
    share = f"{run.num_overflow:,} of {run.decisions.num_rows:,} requests"
    return [
        f"{run.policy}, {run.judge}, shift {shift.name}: {share} found no slot among those in flight and count as late"
    ]


def joined(judge: str, shift_days: int, name: str, results: Sequence[Evaluation]) -> Run:
    """The results of all seeds as one run."""
    decisions = concatenate([result.decisions for result in results])
    agreements = [result.agreement for result in results if result.agreement is not None]
    out_of_support = [result.out_of_support for result in results if result.out_of_support is not None]
    overflow = int(decisions.lost.sum()) if judge != REPLAY else 0
    return Run(
        judge,
        shift_days,
        name,
        decisions,
        agreement=float(np.mean(agreements)) if agreements else None,
        num_overflow=overflow,
        num_illegal=sum(result.num_illegal for result in results),
        by_seed=tuple(result.decisions for result in results) if len(results) > 1 else (),
        out_of_support=float(np.mean(out_of_support)) if out_of_support else None,
    )
