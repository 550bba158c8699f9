"""What the log of some days does not say, so that nobody reads of it what a model or a stand-in filled in.

Without a column of answers every offer looks accepted; without starts or ends waits and run times are stand-ins. Judges
play such days all the same; the metrics that need what is missing are then *not applicable*.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import replace

import jax
import pyarrow.compute as pc

from evaluation.comparison.metrics import Metric
from evaluation.judges.windows import Candidate, Evaluation, Judge
from logs_schema import Archive


def unspecified(archive: Archive, days: Sequence[dt.date]) -> dict[str, str]:
    """Needs of metrics (`comparison.decisions.NEEDS`) that no request of these days meets, with the reason."""
    rows = archive.read("requests", days=list(days), columns=("accepted", "start", "finish", "status"))
    statuses = set(pc.unique(rows["status"]).to_pylist())
    silent = {name: rows[name].null_count == len(rows) for name in ("accepted", "start", "finish")}
    found = {
        "answers": (silent["accepted"] and "rejected" not in statuses, "what agents answered"),
        "waits": (silent["start"], "when requests started"),
        "run_times": (silent["finish"], "when requests ended"),
        "statuses": (statuses <= {"unknown"}, "how requests ended"),
    }
    return {need: f"the log does not say {what}" for need, (missing, what) in found.items() if missing}


def lacks(metric: Metric, reasons: Mapping[str, str]) -> str:
    """Why the metric cannot be told of days that do not say some needs (`unspecified`); empty where it can."""
    return "; ".join(reasons[need] for need in metric.needs if need in reasons)


def without(judge: Judge, reasons: Mapping[str, str]) -> Judge:
    """The judge, whose trials also lack what a log does not say (`unspecified`)."""

    def evaluate(key: jax.Array, candidates: Sequence[Candidate]) -> list[Evaluation]:
        results = judge.evaluate(key, candidates)
        return [
            result._replace(
                decisions=replace(result.decisions, missing={**reasons, **result.decisions.missing})
            )
            for result in results
        ]

    return Judge(judge.name, evaluate)
