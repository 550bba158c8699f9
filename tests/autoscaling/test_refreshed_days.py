"""What reproduces the comparison after a refresh: a log of later days, and traces that stay where they were."""

import datetime as dt

import numpy as np
import pytest

from evaluation.reproduction.drpc import DrpcConfig, traces_of
from evaluation.simulator.applications.load import made_rates
from evaluation.simulator.applications.log import simulate_application
from evaluation.simulator.applications.presets import application
from logs_schema import Archive
from logs_schema.errors import ConfigError
from twin.autoscaling.scaling_log import read_scaling_log

DAY_0 = dt.date(2024, 1, 1)


@pytest.mark.slow
def test_a_log_of_later_days_has_their_dates_and_the_load_that_the_application_has_by_then(tmp_path):
    app = application("chain")
    simulate_application(app, 1, "steady", 3, tmp_path / "log", first_day=DAY_0, interval_s=120.0, begin=29)
    archive = Archive(tmp_path / "log")
    assert archive.days("deployment_samples") == [DAY_0 + dt.timedelta(days=29)]
    assert archive.facts["ground_truth"]["first_day"] == DAY_0.isoformat()  # from which its age is counted
    asked = read_scaling_log(archive).gateway["request_rate_per_s"]
    alike = [
        np.corrcoef(asked, made_rates(app, 1, 120.0, 3, first_day=day).sum(axis=1))[0, 1] for day in (29, 0)
    ]
    assert alike[0] > 0.95 > alike[1]


@pytest.mark.slow
def test_an_interval_of_a_log_has_the_load_of_its_own_time(tmp_path):
    app = application("chain")
    simulate_application(app, 2, "steady", 3, tmp_path / "log", first_day=DAY_0, interval_s=600.0)
    asked = read_scaling_log(Archive(tmp_path / "log")).gateway["request_rate_per_s"]
    np.testing.assert_allclose(asked, made_rates(app, 2, 600.0, 3).sum(axis=1), rtol=1e-4)


def test_no_two_logs_are_judged_under_the_same_load():
    one = DrpcConfig(preset="chain", log_days=2, minutes=60, shifts=(0,), num_seeds=2)
    other = DrpcConfig(**one.__dict__ | {"seed": 1})
    days = [part for config in (one, other) for part in np.split(traces_of(config).rates, 2)]
    assert len({part.tobytes() for part in days}) == len(days)


def test_traces_stay_those_of_the_first_log_and_are_never_before_what_is_learned():
    first = DrpcConfig(preset="chain", log_days=2, minutes=60, shifts=(30,), num_seeds=1)
    later = DrpcConfig(**first.__dict__ | {"refreshed_days": 30})
    np.testing.assert_array_equal(traces_of(first).rates, traces_of(later).rates)
    with pytest.raises(ConfigError, match="days before its own") as refused:
        DrpcConfig(shifts=(7, 30), refreshed_days=8)
    assert "the least shift, 7" in refused.value.allowed
