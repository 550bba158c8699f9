"""A table made again with other seeds, and its means over them: each seed is a world, a log, a twin and trainings.

The interval of one table is over replications of its days: it shows how exactly that one twin's policies are measured.
The interval here is over seeds, and shows what another system, log and training would give.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from evaluation.comparison.seeds import named, named_gap, over_seeds
from evaluation.judges.descriptions import LADDER

SHARES = (
    "on_time",
    "offload_ratio",
    "on_time_over_random",
    "offload_over_random",
    "failures_avoided",
    "share_of_reference",
)
BEST_RULE = "best_rule"
"""In differences: of every seed the rule that proved best in the truth of that very day."""
PAIR = ("policy", "reference", "shift_days")
"""What a difference is of."""
Table = Mapping[str, Any]


def over_repeats(tables: Sequence[Table]) -> dict[str, Any]:
    """The tables of several seeds as one of the same form.

    Args:
        tables: As `table2.table` returns them: of the same policies and shifts, each with a seed of its own.

    Returns:
        Rows and differences as means over seeds with Student's intervals; what some seed lacks is left out.
        `seeds` has for each of them what the certificate said of what training uses, what the ladder chose, and the
        best rule at every shift.
    """
    first = tables[0]
    rows = [{(row["policy"], row["shift_days"]): row for row in table["rows"]} for table in tables]
    cases = [case for case in rows[0] if all(case in others for others in rows)]
    gaps = [
        (
            {"policy": policy, "reference": BEST_RULE, "shift_days": shift},
            [one[policy, shift]["on_time"] - _rule_at(one, policy, shift) for one in rows],
        )
        for policy, shift in cases
        if policy == LADDER and all(BEST_RULE in one[policy, shift] for one in rows)
    ]
    found = [{_pair(one): one["on_time"] for one in table["differences"]} for table in tables]
    gaps += [
        (dict(zip(PAIR, pair, strict=True)), [one[pair] for one in found])
        for pair in found[0]
        if all(pair in one for one in found)
    ]
    return dict(first) | {
        "interval": f"95 % over {len(tables)} seeds of world, log, twin and training",
        "seeds": [
            {
                "seed": table["config"]["seed"],
                "certificate": table["certificate"],
                "chosen": table["chosen"],
                "best_rules": _best_rules(table),
            }
            for table in tables
        ],
        "rows": [_row(case, [one[case] for one in rows]) for case in cases],
        "differences": [
            {**where, **named_gap("on_time", over_seeds(values)), "each": values} for where, values in gaps
        ],
        "in_model_on_time": float(np.mean([table["in_model_on_time"] for table in tables])),
        "optimism_gap": float(np.mean([table["optimism_gap"] for table in tables])),
        "references": [reference for table in tables for reference in table["references"]],
    }


def repeated(seeds: Sequence[int], make: Callable[[int], dict[str, Any]]) -> dict[str, Any]:
    """The table that `make` returns for the seed, or for several the means over them."""
    tables = [make(seed) for seed in seeds]
    return tables[0] if len(tables) == 1 else over_repeats(tables)


def _pair(difference: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(difference[name] for name in PAIR)


def _best_rules(table: Table) -> dict[str, str]:
    return {str(row["shift_days"]): row[BEST_RULE] for row in table["rows"] if BEST_RULE in row}


def _rule_at(rows: Mapping[tuple[str, int], Mapping[str, Any]], policy: str, shift: int) -> float:
    return float(rows[rows[policy, shift][BEST_RULE], shift]["on_time"])


def _row(case: tuple[str, int], same: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    policy, shift = case
    row: dict[str, Any] = {"policy": policy, "shift_days": shift, "num_seeds": len(same)}
    for name in SHARES:
        values = [one.get(name) for one in same]
        if None not in values:
            row |= named(name, over_seeds([float(value) for value in values if value is not None]))
    promised = [one["promised"] for one in same]
    row |= {"low": row["on_time_low"], "high": row["on_time_high"]}
    row["promised"] = None if None in promised else float(np.mean(promised))
    row["overflow"] = float(np.mean([one["overflow"] for one in same]))
    return row
