"""Arrival times against closed forms and against processes whose rate, burstiness and memory are known."""

from pathlib import Path

import jax
import numpy as np
import pyarrow as pa
import pytest

from evaluation.certify.arrival_statistics import ArrivalStatistics, arrival_statistics
from logs_schema import Archive, ArchiveWriter
from logs_schema.calendar import DAY_S, MONDAY_S, WEEK_S
from twin.population import PopulationError
from twin.population.arrival_times import HOURS_A_WEEK, ArrivalModel, draw_arrivals, fit_arrivals, gap_s
from twin.population.arrivals import read_arrivals

MONDAY = 19_723  # 2024-01-01, days since 1970
DAYS = range(MONDAY, MONDAY + 7)


def poisson(rate_per_s: float, seed: int, num_days: int = 7) -> np.ndarray:
    random = np.random.default_rng(seed)
    count = random.poisson(rate_per_s * DAY_S * num_days)
    return np.sort(random.uniform(0.0, DAY_S * num_days, count)) + MONDAY * DAY_S


def crowds(seed: int, num_days: int = 7) -> np.ndarray:
    """Two states that last for minutes, one of them ten times as busy as the other."""
    random = np.random.default_rng(seed)
    pieces, now = [], 0.0
    while now < DAY_S * num_days:
        for rate_per_s in (0.01, 0.1):
            lasts_s = random.exponential(600.0)
            pieces.append(now + np.sort(random.uniform(0.0, lasts_s, random.poisson(rate_per_s * lasts_s))))
            now += lasts_s
    times = np.concatenate(pieces)
    return times[times < DAY_S * num_days] + MONDAY * DAY_S


def of_days(times: np.ndarray) -> list[ArrivalStatistics]:
    days = np.floor(times / DAY_S)
    return [arrival_statistics(times[days == day] - day * DAY_S, DAY_S) for day in np.unique(days)]


def generated(model: ArrivalModel, seed: int = 0) -> np.ndarray:
    times = draw_arrivals(jax.random.key(seed), model, offset_s=0.0, length_s=WEEK_S)
    return times.astype(float)


def test_a_gap_spends_its_amount_of_rate() -> None:
    random = np.random.default_rng(0)
    rate = random.uniform(0.0, 0.02, HOURS_A_WEEK)
    rate[random.random(HOURS_A_WEEK) < 0.3] = 0.0
    begin, amount = random.uniform(0.0, WEEK_S, 200), random.exponential(40.0, 200)
    amount[:5] += 3.0 * rate.sum() * 3600.0  # goes round the week more than once
    found = np.asarray(jax.jit(gap_s)(*(x.astype(np.float32) for x in (rate, begin, amount))))

    def spent(time_s: np.ndarray) -> np.ndarray:
        ends = np.append(0.0, np.cumsum(rate)) * 3600.0
        inside = time_s % WEEK_S
        return np.floor(time_s / WEEK_S) * ends[-1] + np.interp(
            inside, 3600.0 * np.arange(HOURS_A_WEEK + 1), ends
        )

    assert np.allclose(spent(begin + found) - spent(begin), amount, rtol=1e-3, atol=2e-3)


@pytest.mark.slow
def test_a_poisson_process_comes_out_as_one() -> None:
    model = fit_arrivals(poisson(0.02, seed=1), DAYS)
    assert np.sum(model.share) < 0.05
    assert np.isclose(np.mean(model.gap), 1.0, atol=1e-3)
    assert np.isclose(np.var(model.gap), 1.0, atol=0.08)
    times = generated(model)
    statistics = of_days(times)
    assert abs(len(times) / (0.02 * WEEK_S) - 1.0) < 0.05
    assert abs(np.mean([one.dispersion for one in statistics]) - 1.0) < 0.15
    assert abs(np.mean([one.autocorrelation for one in statistics])) < 0.03


@pytest.mark.slow
def test_crowds_come_and_stay() -> None:
    logged = crowds(seed=2)
    real = of_days(logged)
    made = of_days(generated(fit_arrivals(logged, DAYS)))

    def mean(statistics: list[ArrivalStatistics], name: str) -> float:
        return float(np.mean([getattr(one, name) for one in statistics]))

    assert mean(real, "dispersion") > 2.5
    assert mean(real, "autocorrelation") > 0.1
    for name, share in (("rate_per_s", 0.1), ("dispersion", 0.25), ("gap_variation", 0.2)):
        assert abs(mean(made, name) / mean(real, name) - 1.0) < share, name
    assert abs(mean(made, "autocorrelation") - mean(real, "autocorrelation")) < 0.06


def test_the_week_has_its_shape_and_empty_hours_stay_empty() -> None:
    random = np.random.default_rng(3)
    logged = poisson(0.05, seed=3, num_days=14)
    day, hour = ((logged / DAY_S).astype(int) - MONDAY) % 7, logged % DAY_S / 3600.0
    kept = (hour < 12.0) & ((day < 5) | (random.random(len(logged)) < 0.25))
    model = fit_arrivals(logged[kept], range(MONDAY, MONDAY + 14))
    times = generated(model)
    assert np.all(times % DAY_S < 12 * 3600.0)
    per_day = np.bincount((times / DAY_S).astype(int), minlength=7)
    assert np.all(np.abs(per_day[:5] / (0.05 * DAY_S / 2) - 1.0) < 0.12)
    assert np.all(np.abs(per_day[5:] / (0.05 * DAY_S / 8) - 1.0) < 0.3)


@pytest.mark.slow
def test_whole_seconds_stay_whole() -> None:
    logged = np.floor(poisson(0.01, seed=4))
    model = fit_arrivals(logged, DAYS)
    assert model.resolution_s == 1.0
    one = draw_arrivals(jax.random.key(0), model, offset_s=WEEK_S - 3600.0, length_s=20_000.0)
    assert np.array_equal(one, np.floor(one))
    assert np.all(np.diff(one) >= 0.0)
    assert MONDAY_S % DAY_S == 0.0


@pytest.mark.slow
def test_many_arrivals_late_in_a_day_are_as_many_as_the_rate_says() -> None:
    rate = np.full(HOURS_A_WEEK, 1e-3)
    rate[23] = 256.0
    exponential = -np.log1p(-(np.arange(4096) + 0.5) / 4096)
    leaves = rate, exponential / exponential.mean(), np.zeros(2), np.zeros(2), np.full(2, 0.5), 0.0
    model = ArrivalModel(*(np.asarray(leaf, np.float32) for leaf in leaves))
    times = draw_arrivals(jax.random.key(0), model, offset_s=0.0, length_s=23 * 3600.0 + 120.0)
    assert np.all(np.diff(times) >= 0.0)
    np.testing.assert_allclose(np.sum(times > 23 * 3600.0), 120 * 256, rtol=0.04)


def test_too_few_arrivals_are_refused() -> None:
    with pytest.raises(PopulationError, match="7 arrivals are too few"):
        fit_arrivals(np.arange(7) + MONDAY * DAY_S, DAYS)
    with pytest.raises(PopulationError, match="0 arrivals"):
        fit_arrivals(poisson(0.01, seed=5), [MONDAY - 10])


def test_days_apart_with_few_arrivals_tell_no_memory_beyond_themselves() -> None:
    random, days = np.random.default_rng(7), range(MONDAY, MONDAY + 40, 2)
    logged = np.concatenate([day * DAY_S + np.sort(random.uniform(0.0, DAY_S, 6)) for day in days])
    model = fit_arrivals(logged, days)
    assert all(np.isfinite(leaf).all() for leaf in model)


def test_arrivals_of_one_instant_tell_no_gap() -> None:
    with pytest.raises(PopulationError, match="no two of 150 arrivals tell a gap"):
        fit_arrivals(np.full(150, MONDAY * DAY_S + 5.0), DAYS)


def test_of_very_many_arrivals_rates_come_from_all_and_gaps_from_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = poisson(0.01, seed=6, num_days=14)
    count = len(logged)
    rows = {
        "request_id": [str(n) for n in range(count)],
        "site": ["s"] * count,
        "status": ["completed"] * count,
    }
    instants = pa.array((logged * 1e6).astype(np.int64), pa.timestamp("us", tz="UTC"))
    with ArchiveWriter(tmp_path / "log") as writer:
        writer.write("requests", pa.table(rows | {"arrival": instants}), source="log")
    archive = Archive(tmp_path / "log")
    days = archive.days("requests")
    whole = read_arrivals(archive, days)
    looked_at: list[int] = []
    fit = fit_arrivals
    monkeypatch.setattr(
        "twin.population.arrivals.fit_arrivals",
        lambda arrival_s, *rest: looked_at.append(len(arrival_s)) or fit(arrival_s, *rest),
    )
    monkeypatch.setattr("twin.population.arrivals.MOST_ARRIVALS", count // 2 - 100)
    some = read_arrivals(archive, days)
    assert looked_at == [pytest.approx(count // 2 - 100, rel=0.4)]
    assert looked_at[0] <= count // 2 - 100
    np.testing.assert_array_equal(some.rate_per_s, whole.rate_per_s)
    assert (
        np.abs(np.quantile(some.gap, (0.1, 0.5, 0.9)) - np.quantile(whole.gap, (0.1, 0.5, 0.9))).max() < 0.1
    )
