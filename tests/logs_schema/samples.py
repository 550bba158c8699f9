"""Random valid rows of a table, drawn from its declaration: they pass its checks whatever the draw.

Values reach their bounds and labels leave ASCII on purpose; every nullable column has nulls. Nothing about
the rows is realistic: they are for tests of whatever must work for every row that the schema allows.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from logs_schema.casting import complete
from logs_schema.columns import INSTANT, LABEL, LABELS, Column, TableSpec
from logs_schema.ordering import MICROS_PER_DAY

NULL_FRACTION = 0.2
BOUND_FRACTION = 0.1
ORIGIN = datetime(2020, 1, 30, tzinfo=UTC)
_NAMES = ("a", "b-1", "größe", "名前", "with space", 'quote"d', "x|y")

Draw = Callable[[Column, int, np.random.Generator], pa.Array]


def sample_rows(
    spec: TableSpec,
    num_rows: int,
    generator: np.random.Generator,
    *,
    num_days: int = 3,
    origin: datetime = ORIGIN,
) -> pa.Table:
    """Draws rows that a table allows, in no order, with keys that do not repeat.

    Args:
        spec: The table's declaration.
        num_rows: How many rows.
        generator: Source of randomness.
        num_days: Over how many days the deciding instants spread.
        origin: The first of these days.
    """
    instants = _instants(spec, num_rows, generator, num_days, origin)
    arrays = {}
    for column in spec.columns:
        if column.type == INSTANT:
            values = pa.array(instants[column.name], pa.int64()).cast(INSTANT)
        elif column.name == spec.key[0]:
            values = _distinct(column, num_rows, generator)
        else:
            values = _DRAWS[column.type](column, num_rows, generator)
        arrays[column.name] = _with_nulls(values, generator) if column.nullable else values
    return complete(spec, pa.table(arrays))


def _instants(
    spec: TableSpec, num_rows: int, generator: np.random.Generator, num_days: int, origin: datetime
) -> dict[str, np.ndarray]:
    """Instants in microseconds that keep the table's orders, the deciding ones distinct."""
    first_us = int(origin.timestamp() * 1e6)
    span_us = num_days * MICROS_PER_DAY
    instants: dict[str, np.ndarray] = {}
    for column in spec.columns:
        if column.type != INSTANT:
            continue
        earlier = [instants[order.earlier] for order in spec.orders if order.later == column.name]
        if earlier:
            delays_us = (generator.exponential(3600.0, num_rows) * 1e6).astype(np.int64)
            delays_us[generator.random(num_rows) < BOUND_FRACTION] = 0
            instants[column.name] = np.max(earlier, axis=0) + delays_us
        else:
            steps = np.sort(generator.integers(0, span_us - num_rows, num_rows)) + np.arange(num_rows)
            instants[column.name] = first_us + generator.permutation(steps)
    return instants


def _distinct(column: Column, num_rows: int, generator: np.random.Generator) -> pa.Array:
    numbers = generator.permutation(num_rows)
    names = generator.choice(_NAMES, num_rows)
    return _as(column, [f"{name}{number}" for name, number in zip(names, numbers, strict=True)])


def _labels(column: Column, num_rows: int, generator: np.random.Generator) -> pa.Array:
    return _as(column, generator.choice(column.allowed or _NAMES, num_rows).tolist())


def _label_lists(column: Column, num_rows: int, generator: np.random.Generator) -> pa.Array:
    lengths = generator.integers(0, 4, num_rows)
    return pa.array([generator.choice(_NAMES, length).tolist() for length in lengths], LABELS)


def _numbers(column: Column, num_rows: int, generator: np.random.Generator) -> pa.Array:
    lower, upper = column.lower, column.upper
    if lower is None:
        values = generator.normal(0.0, 10.0, num_rows)
    elif upper is None:
        values = lower + generator.lognormal(0.0, 2.0, num_rows)
    else:
        values = generator.uniform(lower, upper, num_rows)
    for bound in (lower, upper):
        if bound is not None:
            values[generator.random(num_rows) < BOUND_FRACTION] = bound
    return pa.array(values)


def _counts(column: Column, num_rows: int, generator: np.random.Generator) -> pa.Array:
    lower = -10 if column.lower is None else int(column.lower)
    upper = lower + 20 if column.upper is None else int(column.upper)
    return pa.array(generator.integers(lower, upper + 1, num_rows), pa.int32())


def _truths(_: Column, num_rows: int, generator: np.random.Generator) -> pa.Array:
    return pa.array(generator.random(num_rows) < 0.5)


def _as(column: Column, texts: list[str]) -> pa.Array:
    values = pa.array(texts, pa.string())
    return values.dictionary_encode() if column.type == LABEL else values


def _with_nulls(values: pa.Array, generator: np.random.Generator) -> pa.Array:
    kept = np.arange(len(values))
    hidden = generator.random(len(values)) < NULL_FRACTION
    return values.take(pa.array(kept, pa.int64(), mask=hidden))


_DRAWS: Mapping[pa.DataType, Draw] = {
    LABEL: _labels,
    LABELS: _label_lists,
    pa.string(): _labels,
    pa.float64(): _numbers,
    pa.int32(): _counts,
    pa.bool_(): _truths,
}
