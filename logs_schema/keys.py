"""Duplicate keys over a whole archive, in bounded memory.

Every good row leaves 16 bytes on disk: a 64-bit hash of its key and its sequence number. At the end the
hashes are gone through in as many passes as keep one pass below `PASS_ROWS` rows, each pass sorting the
hashes of one range; all but the first row (the lowest sequence number) of equal hashes are duplicates.

Equal hashes are taken for equal keys. Two different keys of 20 million collide somewhere with probability
1e-5; the later of the two rows would then be quarantined, never silently dropped.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.columns import LABEL, TableSpec

PASS_ROWS = 2_000_000
_READ_ROWS = 500_000
_ENTRY = np.dtype([("hash", np.uint64), ("sequence", np.int64)])
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_WORD = 8


class KeyLedger:
    """The keys of all good rows of one table, kept in one file.

    Args:
        file: Where to keep them; created at the first `add`.
    """

    ENTRY_BYTES = _ENTRY.itemsize

    def __init__(self, file: Path) -> None:
        self.file = file
        self.num_rows = 0

    def add(self, hashes: np.ndarray, sequence: np.ndarray) -> None:
        """Notes key hashes uint64 `[rows]` with their rows' sequence numbers int64 `[rows]`."""
        entries = np.empty(len(hashes), _ENTRY)
        entries["hash"], entries["sequence"] = hashes, sequence
        with open(self.file, "ab") as stream:
            stream.write(entries.tobytes())  # `tofile` is silent where a full disk takes no more
        self.num_rows += len(entries)

    def duplicates(self, pass_rows: int = PASS_ROWS) -> np.ndarray:
        """Sequence numbers, ascending, of all rows whose key an earlier row has.

        Args:
            pass_rows: About how many rows to hold at once.
        """
        num_passes = -(-self.num_rows // pass_rows)
        found = [self.later_of_equals(part, num_passes) for part in range(num_passes)]
        return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)

    def _entries(self, part: int, num_parts: int) -> np.ndarray:
        """Entries whose hash lies in the given part of the range of hashes."""
        width = 2**64 // num_parts + 1
        kept = []
        for entries in self._pieces():
            kept.append(entries[entries["hash"] // np.uint64(width) == part] if num_parts > 1 else entries)
        return np.concatenate([*kept, np.empty(0, _ENTRY)])

    def later_of_equals(self, part: int, num_parts: int) -> np.ndarray:
        """Sequence numbers of the rows whose key an earlier row has, of one part of the range of hashes."""
        return _later_of_equals(self._entries(part, num_parts))

    def _pieces(self) -> Iterator[np.ndarray]:
        yield from self._entries_of(self.file)

    def _entries_of(self, file: Path) -> Iterator[np.ndarray]:
        with open(file, "rb") as stream:
            while len(entries := np.fromfile(stream, _ENTRY, _READ_ROWS)):
                yield entries


def key_hashes(spec: TableSpec, rows: pa.Table) -> np.ndarray:
    """64-bit hashes of the rows' keys, uint64 `[rows]`; key columns must not hold nulls."""
    hashes = np.zeros(rows.num_rows, np.uint64)
    for name in spec.key:
        hashes = _mixed(hashes * _GOLDEN + _hashes(rows[name]))
    return hashes


def _later_of_equals(entries: np.ndarray) -> np.ndarray:
    hashes = np.sort(entries["hash"])
    repeated = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    if not len(repeated):
        return np.empty(0, np.int64)
    place = np.minimum(np.searchsorted(repeated, entries["hash"]), len(repeated) - 1)
    suspects = entries[repeated[place] == entries["hash"]]
    suspects = suspects[np.lexsort((suspects["sequence"], suspects["hash"]))]
    is_first = np.ones(len(suspects), bool)
    is_first[1:] = suspects["hash"][1:] != suspects["hash"][:-1]
    return suspects["sequence"][~is_first]


def _hashes(values: pa.ChunkedArray) -> np.ndarray:
    if values.type == LABEL:
        whole = values.unify_dictionaries().combine_chunks()
        return text_hashes(whole.dictionary)[whole.indices.to_numpy()]
    if values.type == pa.string():
        return text_hashes(values.combine_chunks())
    return _mixed(pc.cast(values, pa.int64()).to_numpy().view(np.uint64))


def text_hashes(texts: pa.Array) -> np.ndarray:
    """64-bit hashes of a string array without nulls, uint64 `[n]`: eight bytes of every text at a time."""
    num_texts = len(texts)
    _, offsets_buffer, data_buffer = texts.buffers()
    if num_texts == 0 or offsets_buffer is None:
        return np.zeros(num_texts, np.uint64)
    offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + num_texts + 1]
    data = np.frombuffer(data_buffer if data_buffer is not None else b"", np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    hashes = _mixed(lengths.view(np.uint64) + _GOLDEN)
    active, done = np.flatnonzero(lengths > 0), 0
    while len(active):
        words = _words(data, starts[active] + done, lengths[active] - done)
        hashes[active] = _mixed(hashes[active] * _GOLDEN + words)
        done += _WORD
        active = active[lengths[active] > done]
    return hashes


def _words(data: np.ndarray, starts: np.ndarray, num_left: np.ndarray) -> np.ndarray:
    """Up to eight bytes from each start, zero-padded, as one uint64 each."""
    steps = np.arange(_WORD)
    letters = data[np.minimum(starts[:, None] + steps, len(data) - 1)]
    letters[steps >= num_left[:, None]] = 0
    return letters.view(np.uint64)[:, 0]


def _mixed(values: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64 (Steele, Lea and Flood 2014): every input bit reaches every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
