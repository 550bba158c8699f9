"""From a log to learned edges: reading days, fitting, keeping."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from logs_schema import Archive
from logs_schema.errors import ConfigError
from twin.arrays import load_structure, save_arrays

from .problem import BatchEdges, expected_s

EDGES = "edges.npz"
COLUMNS = ("arrival", "finish", "input_mib", "offered_node")


class Batches(NamedTuple):
    """What a log says of some days, in the order of arrival; leaves [rows]."""

    day: np.ndarray  # ordinal of the calendar day
    arrival_s: np.ndarray  # since 1970
    response_s: np.ndarray
    size_mib: np.ndarray
    edge: np.ndarray  # the decision


def names_of(archive: Archive) -> tuple[str, ...]:
    """The edges of an archive, in the order of decisions."""
    return tuple(archive.nodes()["node_id"].to_pylist())


def lacking(archive: Archive) -> str:
    """Why a log holds no batches, in words; empty where it does."""
    table = archive.read("requests", columns=["input_mib"])
    if table.num_rows and table["input_mib"].null_count < table.num_rows:
        return ""
    return "the archive's requests have no size (column input_mib)"


def read_batches(archive: Archive, days: Sequence[dt.date]) -> Batches:
    """Batches of some days whose size, edge and end are known; ConfigError where there are none."""
    rows = archive.read("requests", columns=list(COLUMNS), days=days).drop_null()
    if not rows.num_rows:
        raise ConfigError(
            "the log holds no batch whose size, edge and end are known",
            where=f"{archive.path}, table requests",
            allowed=f"rows with {', '.join(COLUMNS)}",
            advice="name other days, or another problem",
        )
    arrival_us, finish_us = (rows[name].to_numpy().astype("datetime64[us]") for name in COLUMNS[:2])
    arrival_s = arrival_us.astype(np.int64) / 1e6
    names = names_of(archive)
    return Batches(
        719_163 + (arrival_s // 86_400.0).astype(np.int64),
        arrival_s,
        (finish_us - arrival_us).astype(np.int64) / 1e6,
        rows["input_mib"].to_numpy(),
        np.array([names.index(name) for name in rows["offered_node"].to_pylist()]),
    )


def fit_edges(batches: Batches, cores: np.ndarray) -> BatchEdges:
    """A line for every edge, by least squares of relative errors; each is right on average."""
    lines, chances = [], []
    for edge in range(len(cores)):
        mine = batches.edge == edge
        size, response = batches.size_mib[mine], batches.response_s[mine]
        if len(np.unique(size)) < 2:
            raise ConfigError(
                f"too few batches were sent to edge {edge} to learn how it answers", allowed="two sizes"
            )
        columns = np.stack([np.ones_like(size), size], axis=1)
        line = np.linalg.lstsq(columns / response[:, None], np.ones_like(size), rcond=None)[0]
        chance = response / (columns @ line)
        lines.append(line * chance.mean())
        chances.append(np.log(chance / chance.mean()))
    delay_s, s_per_mib = np.stack(lines, axis=1)
    gap_s = np.diff(batches.arrival_s, append=batches.arrival_s[-1] + 60.0)
    spread = np.std(np.concatenate(chances))
    leaves = (delay_s, s_per_mib, spread, cores, batches.size_mib, gap_s)
    return BatchEdges(*(jnp.asarray(leaf, jnp.float32) for leaf in leaves))


def cores_of(archive: Archive) -> np.ndarray:
    """Cores [edges] in the order of `names_of`."""
    return archive.nodes()["cpu_cores"].to_numpy()


def true_edges(archive: Archive) -> BatchEdges | None:
    """The edges as they are, where the archive knows them: whoever made the log wrote them into its facts."""
    facts = archive.facts.get("edges")
    if facts is None:
        return None
    delay_s, s_per_mib = np.array([facts[name] for name in names_of(archive)]).T
    leaves = (delay_s, s_per_mib, 0.0, cores_of(archive), [], [])
    return BatchEdges(*(jnp.asarray(leaf, jnp.float32) for leaf in leaves))


def save_edges(folder: Path, edges: BatchEdges) -> None:
    """Writes them into a product's folder."""
    save_arrays(folder / EDGES, edges)


def load_edges(folder: Path) -> BatchEdges:
    """Reads them; ProductError where they are damaged."""
    return BatchEdges(*map(jnp.asarray, load_structure(folder / EDGES, BatchEdges(*range(6)))))


def response_of(edges: BatchEdges, size_mib: np.ndarray, edge: np.ndarray) -> np.ndarray:
    """Expected response times [rows] of batches sent to edges [rows]."""
    return np.asarray(expected_s(edges, jnp.asarray(size_mib)))[edge, np.arange(len(edge))]
