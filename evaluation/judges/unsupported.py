"""Information that the log of some days lacks, so that values filled in by a model are not reported as logged ones.

Without a column of answers every offer counts as accepted; without starts or ends waits and run times are substitutes.
Such days are evaluated all the same; metrics that need the missing information are *not applicable*.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace

import jax
import pyarrow as pa
import pyarrow.compute as pc

from evaluation.comparison.metrics import Metric
from evaluation.judges.judge import Candidate, Evaluation, Judge
from logs_schema import Archive
from logs_schema.implied_times import with_implied_times


def unspecified(archive: Archive, days: Sequence[dt.date]) -> dict[str, str]:
    """Needs of metrics (`comparison.decisions.NEEDS`) that no request of these days meets, with the reason."""
    statuses, silent = set[str](), dict.fromkeys(("accepted", "start", "finish"), True)
    for part in archive.scan("requests", days=days, columns=(*silent, "arrival", "run_s", "status")):
        batch = with_implied_times(pa.Table.from_batches([part]))
        statuses |= set(pc.unique(batch["status"]).to_pylist())
        silent = {name: silent[name] and batch[name].null_count == len(batch) for name in silent}
    found = {
        "answers": (silent["accepted"] and "rejected" not in statuses, "what agents answered"),
        "waits": (silent["start"], "when requests started"),
        "run_times": (silent["finish"], "when requests ended"),
        "statuses": (statuses <= {"unknown"}, "how requests ended"),
    }
    return {need: f"the log does not say {what}" for need, (missing, what) in found.items() if missing}


def lacks(metric: Metric, reasons: Mapping[str, str]) -> str:
    """Why the metric is not applicable to days without some needs (`unspecified`); empty where it is."""
    return "; ".join(reasons[need] for need in metric.needs if need in reasons)


def without(judge: Judge, reasons: Mapping[str, str]) -> Judge:
    """The judge, with the needs that a log lacks (`unspecified`) added to `Decisions.missing` of its results."""

    def evaluate(key: jax.Array, candidates: Sequence[Candidate]) -> list[Evaluation]:
        results = judge.evaluate(key, candidates)
        return [
            result._replace(
                decisions=replace(result.decisions, missing={**reasons, **result.decisions.missing})
            )
            for result in results
        ]

    return Judge(judge.name, evaluate)
