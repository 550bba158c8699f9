"""KaiS's and KMPS's tables made again: each with a world, a log, a twin and trainings of its own.

The interval of one table is over runs of its days, and shows how exactly that one training was measured. Here it is
Student's over the repeats, and shows what another system, log and training would give. Beside the rows stand the
differences of what is trained and what it has to beat, paired by repeat.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.comparison.seeds import over_seeds
from evaluation.reproduction.orchestration import OrchestrationConfig, reproduce
from evaluation.reproduction.orchestration_learners import Learn
from evaluation.reproduction.orchestration_pairs import APART, BASELINE_PAIRS, name_of
from evaluation.simulator.world import World
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress

BEST_BASELINE = "best_baseline"
"""In differences: of every repeat and day the pair of the papers' baselines that proved best in that very truth."""
RIVALS = ("expected_on_time", "lookahead")
Row = dict[str, Any]


def repeated(
    worlds: Callable[[int], World],
    config: OrchestrationConfig,
    num_repeats: int,
    out: Path,
    learners: Mapping[str, Learn],
    progress: Progress,
) -> dict[str, Any]:
    """The table of `reproduce`, or of several repeats their means.

    Args:
        worlds: Seed -> its world.
        config: Of one table; the first repeat has its seed for world, log and training, each next one the next.
        num_repeats: At least 1.
        out: Folder for the logs, and for the table of every repeat.
        learners: See `reproduce`.
        progress: Where to show how far it is.

    Raises:
        ConfigError: fewer than one repeat.
    """
    if num_repeats < 1:
        raise ConfigError(f"{num_repeats} repeats", where="reproduce --repeats", allowed="1 or more")
    if num_repeats == 1:
        return reproduce(worlds(config.seed), config, out, learners, progress)
    tables = []
    for seed in range(config.seed, config.seed + num_repeats):
        progress.note(f"repeat {seed - config.seed + 1} of {num_repeats}: seed {seed}")
        own = replace(config, seed=seed, train_seeds=(seed,), bench=replace(config.bench, seed=seed))
        folder = out / f"repeat{seed}"
        tables.append(reproduce(worlds(seed), own, folder, learners, progress))
        (folder / "table.json").write_text(json.dumps(tables[-1], indent=1) + "\n")
    return over_worlds(tables)


def over_worlds(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The tables of several repeats as one: rows with intervals over them, and `differences`."""
    cases = [
        {(row["dispatch"], row["orchestration"], row["day"]): row for row in table["rows"]}
        for table in tables
    ]
    rows = [_mean_row([one[case] for one in cases]) for case in cases[0]]
    return dict(tables[0]) | {
        "interval": f"95 % over {len(tables)} repeats of world, log, twin and training",
        "rows": rows,
        "differences": list(_differences(rows)),
    }


def _mean_row(same: Sequence[Row]) -> Row:
    each = [float(row["on_time"]) for row in same]
    mean, cost = over_seeds(each), over_seeds([float(row["cost_mib"]) for row in same])
    return same[0] | {
        "on_time": mean.value,
        "low": mean.low,
        "high": mean.high,
        "cost_mib": cost.value,
        "each": each,
        "num_worlds": len(same),
        "num_trainings": sum(row["num_trainings"] for row in same),
    }


def _differences(rows: Sequence[Row]) -> Iterator[Row]:
    """Every trained row and rival less the best baseline, less the other rivals of its day, and what was trained
    together less the same learners apart; paired by repeat."""
    baselines = {name_of(pair) for pair in BASELINE_PAIRS}
    for day in dict.fromkeys(row["day"] for row in rows):
        today = [row for row in rows if row["day"] == day]
        published = [row["each"] for row in today if row["name"] in baselines]
        against = {BEST_BASELINE: [max(one) for one in zip(*published, strict=True)]} if published else {}
        against |= {row["name"]: row["each"] for row in today if row["name"] in RIVALS}
        for row in today:
            if not (row["num_trainings"] or row["name"] in RIVALS):
                continue
            apart = {one["name"]: one["each"] for one in today if one["name"] == APART.get(row["name"])}
            others = {name: each for name, each in (against | apart).items() if name != row["name"]}
            for name, each in others.items():
                gaps = [own - other for own, other in zip(row["each"], each, strict=True)]
                gap = over_seeds(gaps)
                yield {
                    "name": row["name"],
                    "reference": name,
                    "day": day,
                    "on_time": gap.value,
                    "low": gap.low,
                    "high": gap.high,
                    "each": gaps,
                }
