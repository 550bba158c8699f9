"""Checks: samples of the declaration pass them, and each rule catches just the row that breaks it."""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logs_schema.checks import check_rows
from logs_schema.columns import INSTANT, LABEL, LABELS, Column, TableSpec
from logs_schema.tables import REQUESTS, TABLES
from tests.logs_schema.samples import sample_rows

NUM_ROWS = 12
BAD_ROW = 5
INSTANT_RULES = [(spec, order) for spec in TABLES for order in spec.orders]
EARLY, LATE = datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC)


def rules_of(column: Column) -> list[str]:
    """Every rule that a value of the right type can break."""
    is_float = column.type == pa.float64()
    applies = {
        "null": not column.nullable,
        "out_of_range": column.type == INSTANT,
        "line_break": column.type in (LABEL, LABELS, pa.string()) and not column.allowed,
        "empty_name": column.type == LABELS,
        "not_finite": is_float,
        "too_large": is_float,
        "below": column.lower is not None,
        "above": column.upper is not None,
        "not_allowed": bool(column.allowed),
    }
    return [rule for rule, applied in applies.items() if applied]


COLUMN_RULES = [
    (spec, f"{rule}:{column.name}") for spec in TABLES for column in spec.columns for rule in rules_of(column)
]


def samples(spec: TableSpec, num_rows: int = NUM_ROWS, seed: int = 0) -> pa.Table:
    return sample_rows(spec, num_rows, np.random.default_rng(seed))


def with_value(rows: pa.Table, name: str, value: Any, row: int = BAD_ROW) -> pa.Table:
    """The same rows with one value replaced."""
    values = rows[name].to_pylist()
    values[row] = value
    index = rows.column_names.index(name)
    return rows.set_column(index, name, pa.array(values, rows.schema.field(name).type))


def breaking(column: Column, rule: str) -> Any:
    if rule == "null":
        return None
    if rule == "not_finite":
        return float("nan")
    if rule == "too_large":
        return 1e16  # such numbers overflow in single precision, when a twin is fitted
    if rule == "not_allowed":
        return "no such thing"
    if rule == "line_break":
        return ["a", "two\nlines"] if column.type == LABELS else "two\rlines"
    if rule == "empty_name":
        return ["a", None]
    if rule == "out_of_range":
        return 300_000_000_000_000_000  # microseconds: the year 11476
    bound = column.lower if rule == "below" else column.upper
    assert bound is not None
    return bound + (-1 if rule == "below" else 1)


@pytest.mark.parametrize("spec", TABLES, ids=lambda spec: spec.name)
@given(seed=st.integers(0, 2**32), num_rows=st.integers(0, 40))
def test_samples_break_no_rule(spec: TableSpec, seed: int, num_rows: int) -> None:
    checked = check_rows(spec, samples(spec, num_rows, seed))
    assert checked.rules == ()
    assert checked.good.all()
    assert len(checked.good) == num_rows


@pytest.mark.parametrize(("spec", "rule"), COLUMN_RULES, ids=lambda part: getattr(part, "name", part))
def test_each_column_rule_catches_the_row_that_breaks_it(spec: TableSpec, rule: str) -> None:
    kind, name = rule.split(":")
    bad = with_value(samples(spec), name, breaking(spec.column(name), kind))
    checked = check_rows(spec, bad)
    assert checked.rules == (rule,)
    assert checked.bad_rows.tolist() == [BAD_ROW]
    assert checked.rule(BAD_ROW) == rule
    assert checked.rule(0) is None


@pytest.mark.parametrize(("spec", "order"), INSTANT_RULES, ids=lambda part: part.name)
def test_each_order_catches_the_row_that_breaks_it(spec: TableSpec, order: Any) -> None:
    rows = samples(spec)
    for name in {instant for other in spec.orders for instant in (other.earlier, other.later)}:
        if name not in (order.earlier, order.later) and spec.column(name).nullable:
            rows = with_value(rows, name, None)
    bad = with_value(with_value(rows, order.earlier, LATE), order.later, EARLY)
    checked = check_rows(spec, bad)
    assert checked.rules == (order.name,)
    assert checked.bad_rows.tolist() == [BAD_ROW]
    equal = check_rows(spec, with_value(with_value(rows, order.earlier, LATE), order.later, LATE))
    assert equal.good.all()


def test_a_row_is_charged_with_its_first_rule_only() -> None:
    rows = with_value(with_value(samples(REQUESTS), "cpu_cores", -1.0), "status", "nonsense")
    rows = with_value(rows, "status", "nonsense", row=6)
    checked = check_rows(REQUESTS, rows)
    assert checked.rule(BAD_ROW) == "below:cpu_cores"
    assert checked.rule(6) == "not_allowed:status"
