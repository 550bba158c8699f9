"""A short log's certificate: its last days of training are held out as well, each from a twin of the days before it."""

import datetime as dt
from types import SimpleNamespace

import numpy as np
import pytest

from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Verdict
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.problems.autoscaling import certifying
from logs_schema.errors import ConfigError

DAYS = [dt.date(2024, 1, 1) + dt.timedelta(days=number) for number in range(9)]
PER_DAY = 4


def a_log(_archive, days, _deployments):
    number = PER_DAY * len(days)
    ones = np.ones(number)
    return SimpleNamespace(
        days=list(days),
        time_s=np.arange(number) * certifying.DAY_S / PER_DAY,
        interval_s=21600.0,
        columns={name: ones[:, None] for name in ("cpu_cores_used", "ready_replicas")},
        censored=ones < 1.0,
        gateway={name: ones for name in ("response_s", "response_p95_s", "request_rate_per_s")},
    )


def a_twin(log):
    if len(log.days) < 2:
        raise ConfigError("too few intervals", where="deployment_samples", allowed="50 or more")
    return SimpleNamespace(days=log.days, deployments=("a",))


def answers(twin, log):
    """5 % too long, and right about days that the twin knows."""
    off = np.repeat([1.0 if day in twin.days else 1.05 for day in log.days], PER_DAY)
    return certifying.ReplayedDays(off, off, off, off[:, None])


@pytest.fixture
def certificate(monkeypatch):
    monkeypatch.setattr(certifying, "read_scaling_log", a_log)
    monkeypatch.setattr(certifying, "fit_application", a_twin)
    monkeypatch.setattr(certifying, "simulated_again", answers)
    monkeypatch.setattr(
        certifying, "beyond_training", lambda _twin, log: np.zeros((len(log.time_s), 1), bool)
    )

    def make(num_train, num_held, keep=NOTHING_KEPT):
        train, archive = DAYS[:num_train], SimpleNamespace(content_hash="")
        twin, days = a_twin(SimpleNamespace(days=train)), DAYS[num_train:][:num_held]
        return certifying.certify(twin, archive, train, days, CertifyConfig(), "", keep)

    return make


def test_as_many_days_of_training_as_an_interval_lacks_are_held_out_from_twins_that_do_not_know_them(
    certificate,
):
    found = certificate(6, 1)
    mean, _quantile, _cores, beyond = found.lines
    assert mean.value.value == pytest.approx(0.05)  # less where a twin knew its day
    # The first day, and the second from a twin that one day does not make, are not
    assert mean.value.num_units == 5
    assert "5 held-out days, 4 of them days of training" in found.notes[0]
    assert "6 are needed" in found.notes[0]
    assert beyond.value.num_units == 1  # what lies beyond its training days is said of the twin at hand alone


def test_a_log_of_a_week_gives_a_verdict(certificate, monkeypatch):
    monkeypatch.setattr(certifying, "fit_application", lambda log: SimpleNamespace(days=log.days))
    found = certificate(6, 1)
    assert [line.verdict for line in found.lines[:2]] == [Verdict.PASS, Verdict.PASS]
    assert "needed" not in found.notes[0]


def test_days_of_training_are_not_held_out_where_enough_others_are(certificate):
    assert certificate(3, 6).notes[0] == "Intervals are over 6 held-out days."


def test_a_certificate_that_is_killed_goes_on_with_the_day_that_is_missing(
    certificate, monkeypatch, tmp_path
):
    calm, keep, fitted = certificate(6, 1), Unfinished(tmp_path / "units"), []

    def dying(log):
        fitted.append(len(log.days))
        if len(fitted) == 3:
            raise KeyboardInterrupt
        return a_twin(log)

    monkeypatch.setattr(certifying, "fit_application", dying)
    with pytest.raises(KeyboardInterrupt):
        certificate(6, 1, keep)
    assert certificate(6, 1, keep).to_json() == calm.to_json()
    assert fitted == [1, 2, 3, 3, 4, 5]  # days that twins know; the third dies, and is fitted again
