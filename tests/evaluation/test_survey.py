"""The survey: hand-worked distances, noise that is taken off, planted changes found at the shift where they are."""

import datetime as dt
import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from evaluation.commands.cli import main
from evaluation.comparison.survey import day_counts
from evaluation.comparison.survey.day_counts import BINS_A_DECADE, DayCounts, bin_of, count_day
from evaluation.comparison.survey.showing import darkest, day_labels
from evaluation.comparison.survey.survey import (
    Aspect,
    AtShift,
    SurveyConfig,
    _aspect,
    _distances,
    cut_off,
    refit_after,
    stops_after,
    survey,
)
from logs_schema import Archive, ArchiveWriter, ConfigError
from logs_schema.columns import arrow_schema
from logs_schema.mapping import one_by_one
from logs_schema.tables import REQUESTS, SCHEMA_VERSION

FIRST = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
NUM_DAYS, A_DAY = 8, 1_500


def write_log(path: Path, run_s, service, changes=None, facts=None) -> Archive:
    """A log whose run times and services are functions of (day, random generator); `changes` hold for every row."""
    rng, schema, rows = np.random.default_rng(0), arrow_schema(REQUESTS, SCHEMA_VERSION), []
    for day in range(NUM_DAYS):
        for number in range(A_DAY):
            arrival = FIRST + dt.timedelta(days=day, seconds=float(rng.uniform(0, 80_000)))
            begun = arrival + dt.timedelta(seconds=float(rng.exponential(5.0)))
            rows.append({
                "request_id": f"{day}-{number}", "arrival": arrival, "start": begun, "site": "here",
                "finish": begun + dt.timedelta(seconds=run_s(day, rng)), "service": service(day, rng),
                "ran_node": f"m{rng.integers(4)}", "status": "completed",
            } | (changes or {}))  # fmt: skip
    with ArchiveWriter(path, facts=facts or {}) as writer:
        table = pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)
        writer.write("requests", table, source="made")
    return Archive(path)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Run times of day 4 and later are ten times as long; the services are the same throughout."""
    return write_log(
        tmp_path_factory.mktemp("survey") / "archive",
        lambda day, rng: float(rng.lognormal(3.0, 0.5)) * (10.0 if day >= 4 else 1.0),
        lambda day, rng: f"s{rng.integers(5)}",
    )


def test_distances_by_hand() -> None:
    one = np.array([8, 2, 0])
    others = np.array([[8, 2, 0], [4, 1, 5], [0, 0, 0]])
    shares = _distances(one, others, False)
    assert shares[:2].tolist() == pytest.approx([0.0, 0.5])
    assert np.isnan(shares[2])
    moved = _distances(one, np.array([[0, 8, 2]]), True)  # all of it by one bin
    assert moved.tolist() == pytest.approx([1.0 / BINS_A_DECADE])
    assert (bin_of(np.array([10.0])) - bin_of(np.array([1.0]))).tolist() == [BINS_A_DECADE]


def test_a_change_is_found_and_what_did_not_change_is_noise(changed: Archive) -> None:
    found = survey(changed.path, SurveyConfig(), one_by_one)
    by_name = {one.name: one for one in found.aspects}
    run = by_name["run times"].distance
    assert run[:4, 4:].min() == pytest.approx(1.0, abs=0.05)  # ten times: one decade
    assert run[4:, 4:].max() < 0.05
    assert run[:4, :4].max() < 0.05
    for name in ("arrivals", "mix", "waits", "nodes"):
        assert by_name[name].by_shift[0].median < 0.05
        assert found.stops_after_days[name] is None
    # pairs k apart lie on both sides of the change at the median from k = 4 on (4 of 4 of them)
    assert found.stops_after_days["run times"] in (3, 4)
    assert found.refit_after_days["run times"] == found.stops_after_days["run times"]


def test_days_that_differ_as_much_from_one_to_the_next_need_no_refit() -> None:
    def told(*medians: float) -> Aspect:
        at = tuple(AtShift(shift + 1, 5, value, value, value) for shift, value in enumerate(medians))
        return Aspect("mix", "share", 0.1, 0.0, at, np.zeros((2, 2)))

    assert (stops_after(told(0.3, 0.3, 0.3)), refit_after(told(0.3, 0.3, 0.3))) == (1, None)
    assert (stops_after(told(0.0, 0.05, 0.15, 0.2)), refit_after(told(0.0, 0.05, 0.15, 0.2))) == (3, 3)
    assert stops_after(told(0.15, 0.0, 0.0, 0.0, 0.0)) is None  # one odd shift does not end it
    odd = told(0.0, 0.0, 0.15, 0.0, 0.0, 0.0)
    assert (stops_after(odd), refit_after(odd)) == (None, None)  # nor does a refit pay for it


def test_few_requests_a_day_that_do_not_change_are_chance_and_a_change_among_them_is_found() -> None:
    """Of logs of 60 requests a day, four in five were told that a refit pays."""
    rng = np.random.default_rng(0)

    def aspect(num_days: int, factor: float) -> Aspect:
        days = []
        for day in range(num_days):
            run_s = rng.lognormal(5.0, 1.5, 60) * (factor if 2 * day >= num_days else 1.0)
            counts = np.zeros((2, day_counts.NUM_BINS), np.int64)
            np.add.at(counts, (rng.integers(0, 2, 60), bin_of(run_s)), 1)
            durations = {"run times": counts}
            days.append(DayCounts(FIRST.date() + dt.timedelta(days=day), 60, counts[:, :24], durations, {}))
        return _aspect("run times", days, SurveyConfig())

    same, changed = ([aspect(10 + number, factor) for number in range(12)] for factor in (1.0, 8.0))
    assert sum(refit_after(one) is not None for one in same) <= 1
    assert sum(stops_after(one) is not None for one in same) <= 2
    assert all(refit_after(one) is not None for one in changed)
    assert all(at.chance < 0.01 for at in _without_noise().by_shift)


def _without_noise() -> Aspect:
    """Days whose halves are alike: nothing is put down to chance."""
    counts = np.full((2, day_counts.NUM_BINS), 5, np.int64)
    days = [
        DayCounts(FIRST.date() + dt.timedelta(days=day), 60, counts[:, :24], {"waits": counts}, {})
        for day in range(5)
    ]
    return _aspect("waits", days, SurveyConfig())


def test_days_that_a_log_begins_or_ends_within_say_nothing_of_arrivals() -> None:
    def day(number: int, hours: slice) -> DayCounts:
        arrivals = np.zeros((2, 24), np.int64)
        arrivals[:, hours] = 20
        return DayCounts(FIRST.date() + dt.timedelta(days=number), 40, arrivals, {}, {})

    usual = slice(6, 22)  # nothing comes at night
    days = [day(0, slice(14, 22)), *(day(number, usual) for number in (1, 2)), day(3, slice(6, 10))]
    assert cut_off(days) == (days[0].day, days[3].day)
    assert cut_off([day(number, usual) for number in range(4)]) == ()
    assert cut_off([days[0], *(day(number, usual) for number in (1, 2, 3))]) == (days[0].day,)


def test_the_figure_of_days_tells_far_days_apart_and_keeps_its_scale_for_near_ones() -> None:
    far = np.arange(0.0, 40.0)
    assert 36.0 < darkest(far) < 39.0
    assert darkest(np.array([0.0, 0.5, 1.1, np.nan])) == darkest(np.array([np.nan])) == 2.0


def test_days_of_several_years_are_labelled_with_them() -> None:
    days = [dt.date(2023, 12, 30), dt.date(2023, 12, 31)]
    assert day_labels(days) == ["Dec 30", "Dec 31"]
    assert day_labels([*days, dt.date(2024, 1, 1)]) == ["Dec 30 2023", "Dec 31 2023", "Jan 01 2024"]


def test_more_labels_than_are_told_apart_are_counted_together(
    changed: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Days of one law do not differ, however many labels there are, and days of other labels do."""
    monkeypatch.setattr(day_counts, "MAX_LABELS", 3)
    found = count_day((changed.path, changed.days("requests")[0]))
    assert sum(sum(half.values()) for half in found.labels["mix"]) == A_DAY
    assert all(len(half) <= 3 for half in found.labels["mix"])
    monkeypatch.setattr(day_counts, "MAX_LABELS", 200)
    rng = np.random.default_rng(0)

    def day(number: int, first: int = 0, num_labels: int = 400) -> DayCounts:
        halves = day_counts.Labels(), day_counts.Labels()
        for _ in range(4):
            names = np.char.add("n", (first + rng.integers(num_labels, size=5_000)).astype(str))
            for place, half in enumerate(halves):
                day_counts._count(half, pa.array(names[place::2]))
        nothing = np.zeros((2, 24), np.int64)
        return DayCounts(FIRST.date() + dt.timedelta(days=number), 20_000, nothing, {}, {"nodes": halves})

    alike = _aspect("nodes", [day(number) for number in range(6)], SurveyConfig())
    assert alike.noise < 0.1
    assert all(at.median < 0.03 for at in alike.by_shift)
    other = _aspect("nodes", [day(0), day(1, num_labels=150), day(2, first=10_000)], SurveyConfig())
    assert all(at.median > 0.3 for at in other.by_shift)


def test_one_day_cannot_be_held_against_another(changed: Archive) -> None:
    with pytest.raises(ConfigError, match="1 day with requests"):
        survey(changed.path, SurveyConfig(), one_by_one, changed.days("requests")[:1])
    with pytest.raises(ConfigError, match="a share above 0 and below 1"):
        SurveyConfig(share=0.0)
    days = changed.days("requests")
    with pytest.raises(ConfigError, match="a last day after the first"):
        SurveyConfig(first_day=days[2], last_day=days[1])
    some = survey(changed.path, SurveyConfig(first_day=days[1], last_day=days[3]), one_by_one)
    assert some.days == tuple(days[1:4])


def test_an_archive_without_any_row_of_use_is_sent_to_check(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path / "refused") as writer:
        writer.reject("requests", "field_count", "log.csv", 1, "?")
    with pytest.raises(ConfigError, match=r"schedtwin check .*refused` says why no request was kept"):
        survey(tmp_path / "refused", SurveyConfig(), one_by_one)


def test_what_is_the_same_in_all_rows_is_no_aspect(tmp_path: Path) -> None:
    log = write_log(tmp_path / "pool", lambda *_: 1.0, lambda *_: None, {"ran_node": "pool"})
    found = survey(log.path, SurveyConfig(), one_by_one)
    assert [one.name for one in found.aspects] == ["arrivals", "run times", "waits"]


def test_run_times_count_where_the_start_is_unknown(tmp_path: Path) -> None:
    unknown = {"start": None, "finish": None, "run_s": 100.0}
    log = write_log(tmp_path / "durations", lambda *_: 1.0, lambda *_: "ocr", unknown)
    counts = count_day((log.path, log.days("requests")[0]))
    assert counts.durations["run times"].sum(axis=0)[bin_of(np.array([100.0]))] == A_DAY
    assert counts.durations["waits"].sum() == 0


def test_waits_that_the_mapping_says_are_no_aspect(tmp_path: Path) -> None:
    facts = {"limits": {"true_waits": "waits are not logged"}}
    log = write_log(tmp_path / "made", lambda *_: 1.0, lambda *_: "ocr", facts=facts)
    found = survey(log.path, SurveyConfig(), one_by_one)
    assert [one.name for one in found.aspects] == ["arrivals", "run times", "nodes"]


def test_days_of_one_request_cannot_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "A_DAY", 1)
    log = write_log(tmp_path / "thin", lambda *_: 1.0, lambda *_: "ocr")
    with pytest.raises(ConfigError, match="no two of 8 days"):
        survey(log.path, SurveyConfig(), one_by_one)


def test_the_command_tells_it_as_json_and_as_a_page(
    changed: Archive, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "survey.html"
    assert main(["survey", str(changed.path), "--json", "--out", str(page), "--no-progress"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["archive"] == changed.content_hash
    assert len(told["days"]) == NUM_DAYS
    assert [at["shift_days"] for at in told["aspects"]["run times"]["by_shift"]] == list(range(1, NUM_DAYS))
    assert "run times" in told["verdict"][0]
    text = page.read_text()
    assert text.count("<svg") == 6
    assert "<script" not in text
    assert "src=" not in text
