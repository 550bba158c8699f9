"""Columns of the request table as arrays: indices into vocabularies, amounts, instants."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twin.placement.types import COMPLETED, DROPPED, FAILED, REJECTED, UNKNOWN

UNKNOWN_LABEL = "unknown"
MAX_VOCABULARY = 40
"""Labels kept of each kind, the most frequent first; the rest is "unknown"."""
_STATUS = {
    "completed": COMPLETED,
    "failed": FAILED,
    "killed": FAILED,
    "dropped": DROPPED,
    "rejected": REJECTED,
}


def vocabulary(values: Iterable[str | None]) -> tuple[str, ...]:
    """ "unknown" and the most frequent labels, ties by name."""
    counts: dict[str, int] = {}
    for value in values:
        if value is not None and value != UNKNOWN_LABEL:
            counts[value] = counts.get(value, 0) + 1
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    return (UNKNOWN_LABEL, *ranked[:MAX_VOCABULARY])


def refused(rows: pa.Table) -> np.ndarray:
    """[rows] bool: the log says that the node did not take the request: its answer, else its status."""
    return np.asarray(answers_of(rows) == 0.0)


def answers_of(rows: pa.Table) -> np.ndarray:
    """[rows] 1 where the offer was accepted, 0 where not, NaN where the log does not say.

    The log's answer; where it tells refusals by the status alone, that status, or that the request began or ended.
    """
    accepted = pc.cast(pc.cast(rows["accepted"], pa.int8()), pa.float64()).to_numpy(zero_copy_only=False)
    status = pc.cast(rows["status"], pa.string())
    is_rejected = pc.fill_null(pc.equal(status, "rejected"), False).to_numpy(zero_copy_only=False)
    by_status = np.isnan(accepted) & is_rejected
    if not by_status.any():
        return accepted
    known = pc.or_(pc.is_valid(rows["start"]), pc.is_valid(rows["finish"])).to_numpy(zero_copy_only=False)
    told = np.where(is_rejected, 0.0, np.where(known, 1.0, np.nan))
    return np.where(np.isnan(accepted), told, accepted)


def label_index(rows: pa.Table, column: str, vocabulary: Sequence[str]) -> np.ndarray:
    """[rows] int32 index of every row's label in `vocabulary`; 0 ("unknown") where it is null or not in it."""
    return index_of(rows[column], vocabulary, missing=0)


def index_of(labels: pa.Array | pa.ChunkedArray, vocabulary: Sequence[str], *, missing: int) -> np.ndarray:
    """[labels] int32 index of every label in `vocabulary`; `missing` where it is null or not in it."""
    index = pc.index_in(pc.cast(labels, pa.string()), value_set=pa.array(vocabulary, pa.string()))
    return pc.fill_null(index, missing).to_numpy(zero_copy_only=False).astype(np.int32)


def instant_s(rows: pa.Table, column: str) -> np.ndarray:
    """[rows] float64 seconds since 1970; NaN where null."""
    microseconds = pc.cast(pc.cast(rows[column], pa.int64()), pa.float64(), safe=False)
    return microseconds.to_numpy(zero_copy_only=False) / 1e6


def amount(rows: pa.Table, column: str, missing: float) -> np.ndarray:
    """[rows] float64 values, `missing` where null."""
    values = pc.cast(rows[column], pa.float64()).to_numpy(zero_copy_only=False)
    return np.where(np.isnan(values), missing, values)


def agent_index(rows: pa.Table) -> np.ndarray:
    """[rows] int32 index of every row's agent among those of the rows; -1 where it is hidden."""
    encoded = pc.dictionary_encode(pc.cast(rows["agent"], pa.string()))
    encoded = pa.chunked_array([encoded]) if isinstance(encoded, pa.Array) else encoded
    encoded = encoded.combine_chunks() if encoded.num_chunks else encoded
    index = pc.fill_null(encoded.indices, -1).to_numpy() if len(rows) else np.zeros(0)
    return np.asarray(index, np.int32)


def decided_node(rows: pa.Table) -> pa.ChunkedArray:
    """The decision of every row: the node it was offered to, else the node it ran on, else null."""
    return pc.coalesce(*(pc.cast(rows[name], pa.string()) for name in ("offered_node", "ran_node")))


def node_index(rows: pa.Table, node_of_name: dict[str, int], num_nodes: int) -> np.ndarray:
    """[rows] int32 index of the decided node, -1 where the log does not name it; 0 where there is only one node."""
    if num_nodes == 1:
        return np.zeros(len(rows), np.int32)
    names = index_of(decided_node(rows), list(node_of_name), missing=-1)
    return np.append(np.array(list(node_of_name.values()), np.int32), np.int32(-1))[names]


def outcomes(rows: pa.Table, known_until_s: float) -> tuple[np.ndarray, np.ndarray]:
    """[rows] when every request ended, seconds since 1970, inf where that is unknown or later than `known_until_s`, and
    status codes. One that was dropped at an unknown instant was when it arrived, or started."""
    arrival_s, start_s, finish_s = (instant_s(rows, name) for name in ("arrival", "start", "finish"))
    dropped = pc.fill_null(pc.equal(pc.cast(rows["status"], pa.string()), "dropped"), False).to_numpy()
    finish_s = np.where(np.isnan(finish_s) & dropped, np.fmax(arrival_s, start_s), finish_s)
    finish_s = np.where(finish_s <= known_until_s, finish_s, np.inf)
    status = _status(rows, finish_s)
    return np.where((status == REJECTED) | (status == UNKNOWN), np.inf, finish_s), status


def _status(rows: pa.Table, finish_s: np.ndarray) -> np.ndarray:
    """Status codes; UNKNOWN where the outcome is not (or not yet) known. A null acceptance counts as accepted."""
    labels = pc.cast(rows["status"], pa.string())
    codes = np.array([_STATUS.get(label, UNKNOWN) for label in labels.to_pylist()], np.int32)
    finished = np.isfinite(finish_s)
    codes = np.where(finished & (codes == UNKNOWN), COMPLETED, codes)
    codes = np.where(finished | (codes == REJECTED), codes, UNKNOWN)
    return np.where(refused(rows), REJECTED, codes).astype(np.int32)
