"""Judged runs and off-policy rows as files, to the bit: what `evaluation.jobs.unfinished` keeps of a comparison."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evaluation.comparison.bootstrap import Estimate
from evaluation.comparison.decisions import Decisions, concatenate
from evaluation.comparison.entries import OffPolicyRow, Run

FACTS = "facts.json"
WIDE, BESIDE = "demand", b"beside"
"""The column of several rows, and the key of the file's metadata for all that is not a column."""


def save_run(run: Run, folder: Path) -> None:
    """Writes a run into an empty folder: one Parquet file a seed."""
    parts = run.by_seed or (run.decisions,)
    for number, part in enumerate(parts):
        _write_decisions(part, folder / f"{number}.parquet")
    facts = {
        item.name: getattr(run, item.name)
        for item in fields(Run)
        if item.name not in ("decisions", "by_seed")
    }
    (folder / FACTS).write_text(json.dumps({"run": facts, "num_seeds": len(run.by_seed)}))


def load_run(folder: Path) -> Run:
    """Reads what `save_run` wrote."""
    kept = json.loads((folder / FACTS).read_text())
    parts = tuple(
        _read_decisions(folder / f"{number}.parquet") for number in range(max(1, kept["num_seeds"]))
    )
    decisions = concatenate(parts) if kept["num_seeds"] else parts[0]
    return Run(**kept["run"], decisions=decisions, by_seed=parts if kept["num_seeds"] else ())


def save_rows(rows: Iterable[OffPolicyRow], folder: Path) -> None:
    """Writes off-policy rows into an empty folder."""
    (folder / FACTS).write_text(json.dumps([asdict(row) for row in rows]))


def load_rows(folder: Path) -> list[OffPolicyRow]:
    """Reads what `save_rows` wrote."""
    kept = json.loads((folder / FACTS).read_text())
    return [OffPolicyRow(**row | {"estimate": Estimate(**row["estimate"])}) for row in kept]


def save_starts(starts_s: Sequence[np.ndarray], folder: Path) -> None:
    """Writes the starts of the jobs of some weeks into an empty folder."""
    np.savez(folder / "starts.npz", allow_pickle=False, **{str(n): start for n, start in enumerate(starts_s)})


def load_starts(folder: Path) -> list[np.ndarray]:
    """Reads what `save_starts` wrote."""
    with np.load(folder / "starts.npz", allow_pickle=False) as kept:
        return [kept[str(number)] for number in range(len(kept.files))]


def _write_decisions(decisions: Decisions, path: Path) -> None:
    columns = {item.name: getattr(decisions, item.name) for item in fields(Decisions)}
    capacity, missing, rows = (columns.pop(name) for name in ("capacity", "missing", WIDE))
    columns |= {f"{WIDE}_{number}": row for number, row in enumerate(rows)}
    beside = {"capacity": capacity.tolist(), "missing": dict(missing)}
    table = pa.table(columns).replace_schema_metadata({BESIDE: json.dumps(beside)})
    pq.write_table(table, path, compression="zstd")


def _read_decisions(path: Path) -> Decisions:
    table = pq.read_table(path)
    beside = json.loads(table.schema.metadata[BESIDE])
    columns = {name: table[name].to_numpy() for name in table.column_names}
    rows = [columns.pop(name) for name in table.column_names if name.startswith(f"{WIDE}_")]
    capacity = np.array(beside["capacity"], np.float64)
    return Decisions(**columns, demand=np.stack(rows), capacity=capacity, missing=beside["missing"])
