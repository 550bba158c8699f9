"""Key hashes against an independent scalar implementation, duplicates against a dictionary."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs_schema.keys import KeyLedger, key_hashes, text_hashes
from logs_schema.tables import TABLES
from tests.logs_schema.samples import sample_rows

BITS = 2**64 - 1


def mixed(value: int) -> int:
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & BITS
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & BITS
    return value ^ (value >> 31)


def scalar_hash(text: str) -> int:
    data = text.encode()
    value = mixed((len(data) + 0x9E3779B97F4A7C15) & BITS)
    for first in range(0, len(data), 8):
        word = int.from_bytes(data[first : first + 8], "little")
        value = mixed((value * 0x9E3779B97F4A7C15 + word) & BITS)
    return value


@given(st.lists(st.text(max_size=20), max_size=12), st.integers(0, 3))
def test_text_hashes_agree_with_a_scalar_implementation(texts: list[str], offset: int) -> None:
    hashes = text_hashes(pa.array(texts, pa.string())[offset:])
    assert hashes.tolist() == [scalar_hash(text) for text in texts[offset:]]


def test_near_texts_have_far_hashes() -> None:
    texts = [f"{prefix}{number}" for prefix in ("", "0", "job-", "j" * 8) for number in range(2_000)]
    texts += ["\0" * length for length in range(20)]
    assert len(set(text_hashes(pa.array(texts)).tolist())) == len(set(texts))


@pytest.mark.parametrize("spec", TABLES, ids=lambda spec: spec.name)
def test_hashes_do_not_depend_on_the_coding_of_labels(spec: object) -> None:
    rows = sample_rows(spec, 30, np.random.default_rng(0))  # type: ignore[arg-type]
    pieces = pa.concat_tables([rows.slice(20), rows.slice(0, 20)])
    assert key_hashes(spec, pieces).tolist() == np.roll(key_hashes(spec, rows), 10).tolist()  # type: ignore[arg-type]
    assert len(set(key_hashes(spec, rows).tolist())) == 30  # type: ignore[arg-type]


@given(keys=st.lists(st.integers(0, 9), max_size=40), pass_rows=st.integers(1, 50), seed=st.integers(0, 100))
def test_duplicates_are_all_but_the_first(
    tmp_path_factory: pytest.TempPathFactory, keys: list[int], pass_rows: int, seed: int
) -> None:
    ledger = KeyLedger(tmp_path_factory.mktemp("keys") / "keys")
    hashes = np.random.default_rng(0).integers(0, BITS, 10, dtype=np.uint64, endpoint=True)[keys]
    sequence = np.random.default_rng(seed).permutation(len(keys))
    for piece in np.array_split(np.arange(len(keys)), 3):
        ledger.add(hashes[piece], sequence[piece])
    first_of: dict[int, int] = {}
    for key, number in zip(keys, sequence.tolist(), strict=True):
        first_of[key] = min(number, first_of.get(key, number))
    expected = sorted(
        number for key, number in zip(keys, sequence.tolist(), strict=True) if number != first_of[key]
    )
    assert ledger.duplicates(pass_rows).tolist() == expected


def test_no_keys_no_duplicates(tmp_path: Path) -> None:
    assert KeyLedger(tmp_path / "keys").duplicates().tolist() == []


def test_keys_that_a_full_disk_does_not_take_are_an_error() -> None:
    ledger = KeyLedger(Path("/dev/full"))
    with pytest.raises(OSError, match="No space left"):
        ledger.add(np.zeros(9, np.uint64), np.zeros(9, np.int64))
