"""Results of the worlds: a row a policy and shift, and the accuracy of in-model values and certificates by world."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from evaluation.certify.lines import Verdict
from evaluation.comparison.bootstrap import IntervalConfig, estimate, mean_over_units
from evaluation.comparison.entries import is_far
from evaluation.comparison.formatting import FAR_MARK, GUESS
from evaluation.comparison.rank_correlation import rank_correlation
from evaluation.reproduction.benches.worlds_bench import DESERVING, WRONG

PASS, FAIL = Verdict.PASS.value, Verdict.FAIL.value


def rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of one world, seed and shift, from what `worlds_bench.bench_world` found."""
    result = []
    for policy, true in found["true"].items():
        in_model, replications = found["promised"][policy], np.asarray(true["on_time"])
        value = estimate(mean_over_units(replications), len(replications), IntervalConfig(num_replicates=400))
        result.append(
            {
                "world": found["world"],
                "seed": found["seed"],
                "shift_days": found["shift_days"],
                "policy": policy,
                "on_time": value.value,
                "low": value.low,
                "high": value.high,
                "promised": float(np.mean(in_model["on_time"])),
                "mean_response_s": float(np.mean(true["response_s"])),
                "promised_response_s": float(np.mean(in_model["response_s"])),
                "certificate": found["certificate"]["verdict"],
                "marked": is_far(float(np.mean(in_model["out_of_support"]))),
            }
        )
    return result


def summary(found: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy of in-model values and certificate in one world, seed and shift."""
    table = rows(found)
    true, promised = (np.array([row[name] for row in table]) for name in ("on_time", "promised"))
    error = np.abs(promised - true)
    unwarned = [
        row["policy"] for row, one in zip(table, error, strict=True) if one > WRONG and not row["marked"]
    ]
    unmarked = [one for row, one in zip(table, error, strict=True) if not row["marked"]]
    verdict = found["certificate"]["verdict"]
    lines = found["certificate"]["lines"]
    return {
        "world": found["world"],
        "seed": found["seed"],
        "shift_days": found["shift_days"],
        "mean_error": float(error.mean()),
        "worst_error": float(error.max()),
        "worst_unmarked_error": float(max(unmarked, default=0.0)),
        "worst_policy": table[int(error.argmax())]["policy"],
        "rank_correlation": rank_correlation(promised, true),
        "certificate": verdict,
        "failed_lines": [line["name"] for line in lines if line["verdict"] == FAIL],
        "undecided_lines": [
            line["name"]
            for line in lines
            if line["deciding"] and line["verdict"] == Verdict.CANNOT_TELL.value
        ],
        "deserves": bool(error.max() <= DESERVING),
        "unwarned": unwarned if verdict != FAIL else [],
    }


def as_json(found: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values: `rows`, `summaries`, and what is counted over all of them."""
    each = [summary(one) for one in found]
    return {
        "config": config,
        "metric": "share of requests accepted and finished within their deadline",
        "interval": "95 % over simulated days (days x replications of each)",
        "rows": [row for one in found for row in rows(one)],
        "summaries": each,
        "counts": counts(each),
    }


def counts(each: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Certificates by actual and expected verdict, over worlds, seeds and shifts."""
    return {
        "cases": len(each),
        "passed": sum(one["certificate"] == PASS for one in each),
        "failed": sum(one["certificate"] == FAIL for one in each),
        "deserving": sum(one["deserves"] for one in each),
        "deserving_passed": sum(one["deserves"] and one["certificate"] == PASS for one in each),
        "deserving_failed": sum(one["deserves"] and one["certificate"] == FAIL for one in each),
        "passed_beyond_deserving": sum(not one["deserves"] and one["certificate"] == PASS for one in each),
        "cases_with_unwarned_errors": sum(bool(one["unwarned"]) for one in each),
    }


def as_table(found: Sequence[Mapping[str, Any]]) -> Group:
    """Every case, then its policies, then the counts."""
    cases = Table(
        title=Text("optimism gap: in-model less true share on time, in closed loop on the same days")
    )
    for column in (
        "world",
        "seed",
        "days later",
        "mean error",
        "worst",
        "of",
        "worst unmarked",
        "rank corr.",
        "certificate",
        "because",
    ):
        cases.add_column(
            column, justify="left" if column in ("world", "of", "certificate", "because") else "right"
        )
    each = [summary(one) for one in found]
    for one in each:
        why = one["failed_lines"] or one["undecided_lines"]
        cases.add_row(
            one["world"],
            str(one["seed"]),
            str(one["shift_days"]),
            f"{one['mean_error']:.3f}",
            f"{one['worst_error']:.3f}",
            one["worst_policy"],
            f"{one['worst_unmarked_error']:.3f}",
            f"{one['rank_correlation']:.2f}",
            one["certificate"],
            f"{why[0]}{f' and {len(why) - 1} more' if len(why) > 1 else ''}" if why else "",
        )
    verdicts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in counts(each).items())
    return Group(cases, *map(_policies, found), Text(verdicts), Text(f"{FAR_MARK} {GUESS}"))


def _policies(found: Mapping[str, Any]) -> Table:
    table = Table(title=Text(f"{found['world']}, seed {found['seed']}, {found['shift_days']} days later"))
    for column in ("policy", "on time", "interval", "in-model", "response [s]", "in-model [s]"):
        table.add_column(column, justify="left" if column == "policy" else "right")
    for row in sorted(rows(found), key=lambda row: -row["on_time"]):
        mark = FAR_MARK if row["marked"] else ""
        spread = "no interval" if row["low"] is None else f"[{row['low']:.3f}, {row['high']:.3f}]"
        table.add_row(
            row["policy"],
            f"{row['on_time']:.3f}",
            spread,
            f"{row['promised']:.3f}{mark}",
            f"{row['mean_response_s']:.1f}",
            f"{row['promised_response_s']:.1f}",
        )
    return table
