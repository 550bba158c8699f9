"""What a check says of samples of deployments that are not there, or of another unit."""

import numpy as np
import pytest

from logs_schema.archive_writer import ArchiveWriter
from logs_schema.check import check_archive
from logs_schema.formats.reading import tabulate
from logs_schema.tables import DEPLOYMENT_SAMPLES

BEGIN_S, STEP_S, NUMBER = 1_704_067_200, 60.0, 400  # 2024-01-01


def row(place, name, **values):
    usual = {
        "cpu_cores": 0.5,
        "memory_gib": 0.25,
        "num_replicas": 2,
        "cpu_cores_used": 0.2,
        "request_rate_per_s": 40.0,
        "response_s": 0.02,
    }
    return {"time": BEGIN_S + STEP_S * place, "interval_s": STEP_S, "deployment": name} | usual | values


def warnings_of(folder, rows):
    rows = sorted(rows, key=lambda one: (one["time"], one["deployment"]))
    with ArchiveWriter(folder / "archive") as writer:
        writer.write("deployment_samples", tabulate(DEPLOYMENT_SAMPLES, rows), source="made")
    return check_archive(folder / "archive").warnings


def rows_of(names=("cart", "web", "gateway"), skip=lambda place, name: False, **values):
    changed = {name: change for name, change in values.items() if callable(change)}
    still = {name: value for name, value in values.items() if not callable(value)}
    return [
        row(place, name, **still, **{key: change(place, name) for key, change in changed.items()})
        for place in range(NUMBER)
        for name in names
        if not skip(place, name)
    ]


def test_a_whole_log_has_no_warning(tmp_path):
    assert not warnings_of(tmp_path, rows_of())


def test_intervals_without_rows_are_told_with_the_longest_gap(tmp_path):
    (warning,) = warnings_of(tmp_path, rows_of(skip=lambda place, _name: 100 <= place < 190))
    assert warning.startswith(
        "22.5% of the intervals have no row; the longest gap lasts 90 min, to 2024-01-01 03:10 UTC"
    )


def test_deployments_that_appear_and_vanish_are_named_with_when(tmp_path):
    (warning,) = warnings_of(
        tmp_path, rows_of(skip=lambda place, name: name == "cart" and not 60 <= place < 300)
    )
    assert warning.startswith(
        "cart appears on 2024-01-01 01:00 UTC, has no row after 2024-01-01 04:59 UTC: it is learned from"
    )


def test_a_deployment_that_lacks_rows_which_the_others_have_is_named(tmp_path):
    (warning,) = warnings_of(
        tmp_path, rows_of(skip=lambda place, name: name == "cart" and 100 <= place < 200)
    )
    assert warning.startswith("cart has no row in 25% of its intervals")


def test_a_metric_that_is_measured_less_often_than_the_others_is_named(tmp_path):
    used = lambda place, name: 0.2 if place % 2 or name != "web" else None  # noqa: E731
    (warning,) = warnings_of(tmp_path, rows_of(cpu_cores_used=used))
    assert warning.startswith(
        "cpu_cores_used is known in 50% of the rows of web: was it asked for with another step"
    )


def test_what_is_not_called_needs_no_response_time(tmp_path):
    called = {
        "request_rate_per_s": lambda place, name: 40.0 if place % 2 or name != "web" else 0.0,
        "response_s": lambda place, name: 0.02 if place % 2 or name != "web" else None,
    }
    assert not warnings_of(tmp_path, rows_of(**called))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"cpu_cores_used": 0.0002}, "cpu_cores_used is at most 0.04% of cpu_cores"),
        (
            {"memory_gib": 2.0**29},
            "memory_gib is hardly ever between 0.001 and 24,576 GiB a replica (the largest",
        ),
        ({"memory_gib": 2.0**-31}, "memory_gib is hardly ever between"),
        (
            {"cpu_cores": 5000.0, "cpu_cores_used": 200.0},
            "cpu_cores is hardly ever between 0.001 and 1,024 cores",
        ),
    ],
    ids=["cores_as_millicores", "bytes_as_gib", "gib_as_bytes", "millicores_as_cores"],
)
def test_grants_and_use_of_other_units_are_named(tmp_path, values, words):
    (warning,) = warnings_of(tmp_path, rows_of(**values))
    assert warning.startswith(words)
    assert "is it in" in warning or "unit of their column" in warning


def moving(shifts):
    """Rows whose columns follow one load, each some intervals later."""
    load = 40.0 + 10.0 * np.random.default_rng(5).normal(size=NUMBER + 100).clip(-3, 3)
    noise = np.random.default_rng(6)

    def at(column, place, name):
        return load[50 + place - shifts.get(column if name != "gateway" else "users", 0)]

    return rows_of(
        request_rate_per_s=lambda place, name: at("rate", place, name),
        cpu_cores_used=lambda place, name: 0.005 * at("cpu", place, name) + 0.02 * noise.normal() + 0.1,
    )


@pytest.mark.parametrize(
    ("shifts", "words"),
    [
        ({}, None),
        ({"cpu": 5}, "cpu_cores_used moves with request_rate_per_s of 5 intervals before"),
        ({"cpu": -1}, "cpu_cores_used moves with request_rate_per_s of 1 intervals after"),
        (
            {"users": 5},
            "request_rate_per_s of the deployments moves with that of the gateway of 5 intervals after",
        ),
    ],
)
def test_metrics_whose_clocks_stand_apart_are_named(tmp_path, shifts, words):
    found = warnings_of(tmp_path, moving(shifts))
    assert len(found) == (words is not None)
    assert not words or found[0].startswith(words)
    assert not words or f"stand {60 * abs(sum(shifts.values()))} s apart" in found[0]


def test_a_metric_that_is_never_logged_is_not_partly_known(tmp_path):
    idle = {
        "request_rate_per_s": lambda place, name: 40.0 * (place % 10 > 0),
        "response_s": lambda place, name: None,
    }
    (warning,) = warnings_of(tmp_path, rows_of(**idle))
    assert warning.startswith("not logged: response_s")
