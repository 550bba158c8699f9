"""Logs of deployments as arrays: what is read, what counts as censored, what is refused and in which words."""

import datetime as dt
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from evaluation.problems.autoscaling.certifying import beyond_in_words, beyond_training
from evaluation.problems.autoscaling.kit import AUTOSCALING_KIT
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import ProblemOptions
from evaluation.problems.kits import choose_kit
from logs_schema import Archive
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.columns import INSTANT
from logs_schema.errors import ArchiveError, ConfigError
from logs_schema.tables import GATEWAY
from offline_rl.rules.autoscaling.published import typical_grants
from twin.autoscaling.fitting import ScalingCoverage
from twin.autoscaling.scaling_log import read_scaling_log

MIDNIGHT_US = int(dt.datetime(2024, 1, 1, tzinfo=dt.UTC).timestamp()) * 1_000_000


def row(interval, deployment, interval_s=30.0, **values):
    usual = {
        "cpu_cores": 0.5,
        "memory_gib": 0.25,
        "num_replicas": 2,
        "cpu_cores_used": 0.2,
        "memory_gib_used": 0.1,
        "request_rate_per_s": 40.0,
        "response_s": 0.02,
        "num_failures": 0,
    }
    if deployment == GATEWAY:
        usual = {"request_rate_per_s": 10.0, "response_s": 0.05, "response_p95_s": 0.15, "num_failures": 0}
    at_us = MIDNIGHT_US + round(interval * interval_s * 1e6)
    return {"time": at_us, "interval_s": interval_s, "deployment": deployment} | usual | values


def archive(folder, rows):
    table = pa.Table.from_pylist([{name: one.get(name) for name in set().union(*rows)} for one in rows])
    table = table.set_column(
        table.column_names.index("time"), "time", table["time"].cast(pa.int64()).cast(INSTANT)
    )
    with ArchiveWriter(folder) as writer:
        writer.write("deployment_samples", table, source="made")
    return Archive(folder)


def usual_rows(*, skip=()):
    return [
        row(interval, name)
        for interval in range(6)
        if interval not in skip
        for name in ("web", "cart", GATEWAY)
    ]


def test_rows_stand_on_their_grid_and_a_gap_stays_a_gap(tmp_path):
    log = read_scaling_log(archive(tmp_path / "a", usual_rows(skip=(3,))))
    assert log.deployments == ("cart", "web")
    assert log.interval_s == 30.0
    np.testing.assert_array_equal(log.time_s, 30.0 * np.arange(6))
    assert np.isnan(log.columns["request_rate_per_s"][3]).all()
    assert np.isnan(log.gateway["response_s"][3])
    np.testing.assert_array_equal(log.columns["num_replicas"][[0, 5]], 2.0)
    np.testing.assert_array_equal(log.columns["ready_replicas"][0], 2.0)  # nobody says otherwise
    assert log.censored[3]
    assert not log.censored[[0, 1, 2, 4, 5]].any()


def test_deployments_come_in_the_order_asked_for(tmp_path):
    made = archive(tmp_path / "a", [*usual_rows(), row(1, "ad", cpu_cores=1.5)])
    log = read_scaling_log(made, deployments=["web", "ad"])
    assert log.deployments == ("web", "ad")
    assert log.columns["cpu_cores"][1].tolist() == [0.5, 1.5]
    with pytest.raises(ArchiveError, match="does not know basket"):
        read_scaling_log(made, deployments=["basket"])


def test_intervals_short_of_capacity_are_censored(tmp_path):
    rows = usual_rows()
    rows[3 * 2] = row(2, "web", cpu_cores_used=0.49)  # at its capacity
    rows[3 * 4 + 2] = row(4, GATEWAY, num_failures=60)  # a fifth of the requests failed
    log = read_scaling_log(archive(tmp_path / "a", rows))
    np.testing.assert_array_equal(np.flatnonzero(log.censored), [2, 4])


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([*usual_rows(), row(9, "web", interval_s=60.0)], "several lengths"),
        ([*usual_rows(), row(2.4, "web")], "do not stand on the grid"),
        ([one for one in usual_rows() if one["deployment"] != GATEWAY], "what users saw"),
        ([row(0, GATEWAY)], "gateway alone"),
        ([*usual_rows(), row(0, "ad", cpu_cores=None)], r"ad \(cpu_cores\)"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, rows, words):
    with pytest.raises(ArchiveError, match=words) as error:
        read_scaling_log(archive(tmp_path / "a", rows))
    assert "deployment_samples" in str(error.value)
    assert "allowed" in str(error.value)


def test_a_log_of_deployments_alone_is_taken_for_autoscaling(tmp_path):
    made = archive(tmp_path / "a", usual_rows())
    kit, _, told = choose_kit(RunConfig(), made.path, ProblemOptions())
    assert kit.name == "autoscaling"
    assert "so this is of the problem autoscaling" in told


def test_a_log_without_a_day_to_judge_on_is_refused_before_anything_is_learned(tmp_path):
    made = archive(tmp_path / "a", usual_rows())
    with pytest.raises(ConfigError, match="no shift has test days") as error:
        AUTOSCALING_KIT.refuse_untestable(RunConfig(), made)
    assert "no samples of 2024-01-02" in str(error.value)
    assert "a log of two days at least" in str(error.value)  # fewer training days than one there are not
    week_later = [one | {"time": one["time"] + 8 * 86_400_000_000} for one in usual_rows()]
    AUTOSCALING_KIT.refuse_untestable(RunConfig(), archive(tmp_path / "b", [*usual_rows(), *week_later]))


def test_deployments_beyond_the_training_days_are_named_with_what_those_had():
    two = np.ones(2)
    laws = SimpleNamespace(work_s=np.full((1, 2), 0.01), most_cores=np.ones((1, 2)))
    coverage = ScalingCoverage(0.5 * two, two, 4.0 * two, 0.8 * two, 100.0 * two)
    twin = SimpleNamespace(deployments=("a", "b"), laws=laws, coverage=coverage)
    cores = np.array([[1.0, 1.0], [2.0, 1.0], [2.0, 0.25], [1.0, 1.0]])
    replicas = np.array([[2.0, 2.0], [2.0, 2.0], [2.0, 2.0], [5.0, 2.0]])
    rate = np.array([[100.0, 170.0], [10.0, 10.0], [10.0, 10.0], [10.0, 10.0]])
    columns = {
        "cpu_cores": cores,
        "num_replicas": replicas,
        "ready_replicas": replicas,
        "request_rate_per_s": rate,
    }
    found = beyond_training(twin, SimpleNamespace(columns=columns))
    np.testing.assert_array_equal(found, [[False, True], [True, False], [True, True], [True, False]])
    (words,) = beyond_in_words(twin, found)
    assert "a in 75% of the intervals (training days: 0.5 to 1 cores, at most 4 replicas), b in 50%" in words
    assert beyond_in_words(twin, np.zeros((4, 2), bool)) == []


def test_grants_of_a_log_without_memory_are_numbers(tmp_path):
    rows = [row(at, name, memory_gib=None if name == "a" else 0.25) for at in range(3) for name in ("a", "b")]
    log = read_scaling_log(archive(tmp_path / "log", rows + [row(at, GATEWAY) for at in range(3)]))
    np.testing.assert_array_equal(log.memory_granted, [[1.0, 0.25]] * 3)
    np.testing.assert_array_equal(typical_grants(log).memory_gib, [1.0, 0.25])


def test_an_instant_far_from_all_others_and_intervals_of_no_length_are_refused(tmp_path):
    far = archive(tmp_path / "far", [*usual_rows(), row(2880 * 36525, "web")])
    with pytest.raises(ArchiveError, match="none between 2024-01-01 00:02 and 2124-01-02 00:00") as error:
        read_scaling_log(far)
    assert "clock was wrong" in str(error.value)
    with pytest.raises(ArchiveError, match="intervals of 0 s"):
        read_scaling_log(archive(tmp_path / "none", [one | {"interval_s": 0.0} for one in usual_rows()]))
