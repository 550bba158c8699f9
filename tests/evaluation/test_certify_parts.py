"""The parts of a certificate where their values are known: days, dealing, horizons, calibration, arrivals, the page."""

import datetime as dt
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import spearmanr

from evaluation.certify import offloading
from evaluation.certify.calibrated import LEVELS, calibration_error
from evaluation.certify.certificate import EXIT_STATUS, Certificate, Section, certificate_of
from evaluation.certify.cloned_behaviour import resting_on
from evaluation.certify.config import CertifyConfig
from evaluation.certify.family import overall, settled
from evaluation.certify.generating import arrival_lines
from evaluation.certify.held_out import _partners, end_of_log_s, hold_out, parse_days
from evaluation.certify.horizons import growth_exponent, mean_earth_mover
from evaluation.certify.lines import Verdict, about_zero, against_floor, against_limit, not_applicable
from evaluation.certify.offloading import _correlation, offload_lines
from evaluation.certify.page import picture, render, withheld_in_words
from evaluation.certify.persistence import certification_folder, certification_in
from evaluation.certify.rankings import weighted_spearman
from evaluation.certify.resampled import mean_of
from evaluation.certify.simulating import deal
from evaluation.commands.cli import main
from evaluation.comparison.rank_correlation import known_rank_correlation, rank_correlation
from evaluation.comparison.report import Chart, Curve
from evaluation.problems.placement.certifying import certify
from logs_schema import Archive, ArchiveWriter
from logs_schema.columns import arrow_schema
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest, writing
from logs_schema.progress import SilentProgress
from logs_schema.records import to_plain
from logs_schema.tables import NODES, REQUESTS, SCHEMA_VERSION

QUICK = CertifyConfig(num_replicates=200)


def test_days_are_listed_or_ranged():
    assert parse_days("2024-01-05, 2024-01-08..2024-01-10,2024-01-05") == tuple(
        dt.date(2024, 1, day) for day in (5, 8, 9, 10)
    )
    for wrong in ("", "2024-1-5", "2024-01-32", "2024-01-10..2024-01-08", "yesterday"):
        with pytest.raises(ConfigError, match="not a list of days"):
            parse_days(wrong)


@pytest.mark.parametrize(("last_ends", "end_of_log"), [(None, 10), (9.0, 24), (30.0, 24)])
def test_a_log_ends_where_it_was_cut_off_or_at_midnight(tmp_path, last_ends, end_of_log):
    """Of a log exported at ten, runs that end later are unknown, and so must a twin's be."""
    day = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    rows = [
        {
            "request_id": str(number),
            "site": "here",
            "arrival": day + dt.timedelta(hours=arrives),
            "start": day + dt.timedelta(hours=arrives),
            "node_id": "a",
            "status": "completed" if ends else "unknown",
            "finish": None if ends is None else day + dt.timedelta(hours=ends),
        }
        for number, (arrives, ends) in enumerate([(1.0, 10.0), (2.0, 3.0), (8.0, last_ends)])
    ]
    nodes = [{"node_id": "a", "site": "here", "tier": "edge", "cpu_cores": 4.0}]
    with ArchiveWriter(tmp_path / "log", source={}, facts={}) as writer:
        for name, spec, table in (("nodes", NODES, nodes), ("requests", REQUESTS, rows)):
            schema = arrow_schema(spec, SCHEMA_VERSION)
            filled = [{column: row.get(column) for column in schema.names} for row in table]
            writer.write(name, pa.Table.from_pylist(filled, schema), source=name, first_row=0, raw=None)
    assert end_of_log_s(Archive(tmp_path / "log")) == (day + dt.timedelta(hours=end_of_log)).timestamp()


def test_partners_are_real_days_of_the_same_kind_and_never_held_out():
    def january(*days):
        return [dt.date(2024, 1, day) for day in days]

    # The 6th, 7th and 13th are a weekend's
    held, others = (
        january(8, 9, 13),
        january(1, 2, 3, 4, 5, 6, 7, 10),
    )
    partners, notes = _partners(held, others, january(1, 2, 3, 4, 5, 6, 7))
    assert partners == tuple(january(10, 5, 7))
    assert not notes
    partners, notes = _partners(january(8, 13), january(5), january(5))
    assert partners == tuple(january(5, 5))
    assert "no further weekend day" in notes[0]


def test_misread_dates_are_neither_held_out_nor_partners():
    days = [dt.date(2024, 1, day) for day in (4, 5, 6, 7, 8)]
    rows = dict.fromkeys(days, 900) | {dt.date(2098, 1, 4): 1, dt.date(2099, 1, 1): 1}
    archive = SimpleNamespace(days=lambda _: list(rows), num_rows=lambda _, day: rows[day])
    chosen = hold_out(archive, days[:2], None, CertifyConfig(enough_rows=100_000))
    assert chosen.days == tuple(days[2:])
    assert set(chosen.partners) == set(days[:2])
    with pytest.raises(ConfigError, match="ends on 2024-01-08, the log on 2024-01-08") as refused:
        hold_out(archive, days, None, CertifyConfig())
    assert "fit the twin on fewer" in str(refused.value)
    rows = {days[0]: 900}
    with pytest.raises(ConfigError, match=r"import later days$"):  # one day cannot be fewer
        hold_out(archive, days[:1], None, CertifyConfig())


@pytest.mark.parametrize(("num_windows", "num_members"), [(7, 3), (1, 5), (6, 2), (12, 1)])
def test_windows_are_dealt_to_members_in_turn(num_windows, num_members):
    members = []
    for turn in range(num_members):
        chosen, place = deal(num_windows, num_members, turn)
        assert len(chosen) % num_members == 0
        assert chosen[place].tolist() == list(range(num_windows))
        share = len(chosen) // num_members
        members.append((place // share).tolist())
        assert members[-1] == [(window - turn) % num_members for window in range(num_windows)]
    assert all(sorted(window) == list(range(num_members)) for window in zip(*members, strict=True))


def test_the_state_distance_of_shifted_states_is_the_shift():
    states = np.random.default_rng(0).normal(size=(2, 40))
    shift = np.array([[0.5], [2.0]])
    told = mean_earth_mover(states, states + shift, np.array([1.0, 2.0]))
    ones = np.ones((1, 40))
    assert told(ones)[0] == pytest.approx((0.5 / 1.0 + 2.0 / 2.0) / 2)
    drawn = np.random.default_rng(1).multinomial(40, np.full(40, 1 / 40), size=3).astype(float)
    assert told(drawn) == pytest.approx(np.full(3, 0.75))
    still = mean_earth_mover(states, states, np.array([1.0, 2.0]))
    assert still(drawn) == pytest.approx(np.zeros(3), abs=1e-12)


def test_growth_of_a_power_law_is_its_exponent():
    horizons = (1.0, 5.0, 20.0, 100.0)
    assert growth_exponent(horizons, [0.1 * h**0.5 for h in horizons]) == pytest.approx(0.5)
    assert np.isnan(growth_exponent((1.0, 5.0), (0.1, 0.2)))
    assert np.isnan(growth_exponent(horizons, np.zeros(4)))


def test_calibration_errors_of_known_ranks():
    ranks = (np.arange(2000) + 0.5) / 2000
    unit = np.arange(2000) % 10
    assert calibration_error(ranks, unit, 10)(np.ones((1, 10)))[0] < 0.001
    sure = calibration_error(np.full(2000, 0.5), unit, 10)(np.ones((1, 10)))[0]
    assert sure == pytest.approx(np.mean(np.abs((LEVELS >= 0.5) - LEVELS)))


def test_rank_correlation_is_scipy_s_and_counts_rows_as_often_as_drawn():
    random = np.random.default_rng(0)
    one, two = random.normal(size=12), random.normal(size=12)
    weights = np.concatenate([np.ones((1, 12)), random.multinomial(12, np.full(12, 1 / 12), size=4)])
    told = weighted_spearman(one, two)(weights)
    for row, value in zip(weights.astype(int), told, strict=True):
        assert value == pytest.approx(spearmanr(np.repeat(one, row), np.repeat(two, row)).statistic)
    assert np.isnan(weighted_spearman(np.zeros(12), two)(weights)).all()


@pytest.mark.parametrize("distinct", [3, 1000])
def test_rank_correlation_is_scipy_s_to_the_last_bit(distinct):
    one, two = np.random.default_rng(1).integers(0, distinct, (2, 40)).astype(float)
    two += one
    assert rank_correlation(one, two) == spearmanr(one, two).statistic
    for undefined in (np.zeros(40), np.where(one == one[0], np.nan, one)):
        assert np.isnan(rank_correlation(undefined, two))
        assert known_rank_correlation(undefined, two) is None
    assert np.isnan(rank_correlation(one[:1], two[:1]))


def test_correlation_over_the_day_leaves_unknown_parts_out():
    one, two = np.array([[0.1, 0.2, np.nan, 0.5, 0.3]]), np.array([[0.2, 0.1, 0.4, 0.6, 0.2]])
    known = [0, 1, 3, 4]
    assert _correlation(one, two)[0] == pytest.approx(np.corrcoef(one[0, known], two[0, known])[0, 1])


@pytest.mark.parametrize("num_parts", [2, 12])
def test_a_correlation_over_the_day_takes_more_than_two_parts_of_it(monkeypatch, num_parts):
    """Of two parts it is 1 or -1 by chance, and none of all the resampled days would tell."""
    part = np.arange(num_parts).repeat(4)
    started = np.zeros((48, 12))
    started[np.arange(4 * num_parts), part] = 100.0
    tables = {
        name: (share * started, started) for name, share in (("real", 0.2), ("twin", 0.2), ("other", 0.2))
    }
    tables["twin"] = (tables["twin"][0] + (np.arange(12) == 1) * 0.01 * started, started)
    monkeypatch.setattr(offloading, "_offload_tables", lambda *_: tables)
    encoding = SimpleNamespace(cluster=SimpleNamespace(sites=("home", "away")))
    lines, _ = offload_lines([None], [None], [None], encoding, QUICK)
    assert (lines[1].verdict is Verdict.NOT_APPLICABLE) == (num_parts == 2)
    assert lines[0].verdict is not Verdict.NOT_APPLICABLE


def poisson(seed, num_days, per_day=6000):
    random = np.random.default_rng(seed)
    return [np.sort(random.uniform(0.0, 86_400.0, random.poisson(per_day))) for _ in range(num_days)]


def test_arrivals_of_one_law_pass_and_others_fail_where_they_differ():
    real, other = poisson(0, 2), poisson(1, 2)
    alike = {line.name: line.verdict for line in arrival_lines(real, poisson(2, 2), other, QUICK)}
    assert Verdict.FAIL not in alike.values()
    assert alike["rate of arrivals"] is Verdict.PASS
    more = {line.name: line.verdict for line in arrival_lines(real, poisson(3, 2, 9000), other, QUICK)}
    assert more["rate of arrivals"] is Verdict.FAIL
    bursts = [
        np.sort(np.repeat(day[::10], 10) + np.tile(np.arange(10) * 0.5, len(day[::10]))) for day in real
    ]
    told = {line.name: line.verdict for line in arrival_lines(real, bursts, other, QUICK)}
    for name in ("dispersion of arrivals", "variation of gaps of arrivals"):
        assert told[name] is Verdict.FAIL
    assert told["rate of arrivals"] is not Verdict.FAIL


def made_certificate(**changed):
    values, unit = np.linspace(0.1, 0.2, 12), np.arange(12)
    told, floor = mean_of(values, unit, 12), mean_of(values / 10, unit, 12)
    intervals = QUICK.intervals()
    lines = (
        against_floor("answers", "KL of <wait>", "nats", told, floor, 12, 0.01, intervals),
        against_limit("answers", "correlation", "1", told, 12, 0.05, intervals, higher_is_better=True),
        not_applicable("answers", "offload", "there is only one site"),
    )
    chart = Chart("Distribution", "s", "share", (Curve("twin", (0.0, 10.0), (0.0, 1.0)),), logarithmic=True)
    made = Certificate(
        overall(lines), tuple(settled(lines, 1)), (Section("answers", "about", (chart,)),), ("2024-01-01",),
        ("2024-01-02",),
        ("2024-01-03",), 100, ("a note",), "", to_plain(QUICK), "aa", "bb",
    )  # fmt: skip
    return replace(made, **changed)


def test_a_certificate_comes_back_from_json():
    made = made_certificate()
    assert Certificate.from_json(json.loads(json.dumps(made.to_json(), allow_nan=False))) == made
    assert made.verdict is Verdict.FAIL
    assert EXIT_STATUS[made.verdict] == 3
    assert made.in_words() == "fail (1 pass, 1 fail, 1 not applicable)"


def test_what_withholds_a_pass_is_said_with_its_threshold_and_the_days_it_takes():
    made = made_certificate()
    assert withheld_in_words(made) == [
        "fail: KL of <wait>, 0.150 [0.130, 0.170]; threshold floor + 0.0100, floor 0.0150"
    ]
    unsure = replace(made.lines[0], verdict=Verdict.CANNOT_TELL, days=7, deciding=True)
    told = withheld_in_words(replace(made, lines=(unsure,)))
    assert told[0].startswith("cannot tell: KL of <wait>")
    assert told[0].endswith("about 7 held-out days are needed for a verdict")
    assert withheld_in_words(replace(made, lines=made.lines[1:])) == []
    assert withheld_in_words(replace(made, lines=(), refusal="there is one node")) == ["there is one node"]


def test_a_verdict_without_a_closed_loop_says_so():
    made = made_certificate()
    clone = replace(made.lines[0], verdict=Verdict.CANNOT_TELL)
    good = replace(made.lines[1], verdict=Verdict.PASS, deciding=True)
    level = replace(good, section="closed loop", name="share on time, twin less log")
    (resting,) = resting_on(clone, [level])
    made = certificate_of(
        [clone, good, resting],
        {"answers": "", "closed loop": ""},
        {},
        QUICK,
        twin="aa",
        archive="bb",
        train_days=[dt.date(2024, 1, 1)],
    )
    assert made.verdict is Verdict.PASS
    assert made.untested == ("share on time, twin less log",)
    assert made.in_words().startswith(
        "pass (1 pass, 1 cannot tell, 1 not applicable); closed loop: not tested"
    )
    page = render(made, "a title")
    assert "The verdict says nothing of share on time, twin less log." in page
    assert "clone_updates" in page
    assert made_certificate().untested == ()


def test_a_twin_does_not_pass_because_more_days_were_needed_to_show_that_the_clone_is_one():
    made = made_certificate()
    level = replace(made.lines[1], verdict=Verdict.PASS, deciding=True, section="closed loop")
    low, limit = made.lines[0].judged.low, made.lines[0].limit
    assert low > limit, "a behaviour that surely cannot be cloned"
    clone = replace(made.lines[0], verdict=Verdict.CANNOT_TELL, limit=low + 0.001)
    (resting,) = resting_on(clone, [level])
    assert resting.verdict is Verdict.CANNOT_TELL
    made = certificate_of(
        [clone, resting],
        {"answers": "", "closed loop": ""},
        {},
        QUICK,
        twin="aa",
        archive="bb",
        train_days=[dt.date(2024, 1, 1)],
    )
    assert made.verdict is Verdict.CANNOT_TELL
    assert made.untested == (level.name,)
    assert "clone_updates" in " ".join(withheld_in_words(made))
    assert "The verdict says nothing of" in render(made, "a title")


def test_training_counts_the_sections_that_it_uses():
    made = made_certificate()
    workload = [replace(line, section="workload") for line in made.lines if line.verdict is Verdict.FAIL]
    others = [line for line in made.lines if line.verdict is not Verdict.FAIL]
    made = replace(made, lines=(*workload, *others), beside=("workload",))
    assert (made.verdict, made.training) == (Verdict.FAIL, Verdict.PASS)
    assert made.in_words() == "fail (1 pass, 1 fail, 1 not applicable); for what training uses: pass"
    assert "all but workload): <b>pass</b>" in render(made, "a title")
    assert Certificate.from_json(made.to_json()) == made


def test_the_page_holds_every_line_escaped_and_needs_nothing_else():
    page = render(made_certificate(), "a <title>")
    for text in (
        "KL of &lt;wait&gt;",
        "there is only one site",
        "floor + 0.0100",
        "at least 0.0500",
        "a note",
    ):
        assert text in page
    assert "<wait>" not in page
    assert page.count("<svg") == 3
    assert "http" not in page.replace("http://www.w3.org", "")
    said = render(made_certificate(refusal="too few rows", lines=(), sections=(), days=()), "t")
    assert "too few rows" in said


def test_pictures_shade_the_bad_side():
    floor_line, limit_line, silent = made_certificate().lines

    def shaded(line):
        rect = picture(line).split("<rect")[1]
        return float(rect.split('x="')[1].split('"')[0])

    dot = float(picture(floor_line).split('class="dot" cx="')[1].split('"')[0])
    assert shaded(floor_line) < dot  # the value lies on the bad side, which begins before it
    assert shaded(limit_line) < 10  # less is worse: the bad side begins at the left edge
    assert picture(silent) == ""


def test_a_signed_value_is_drawn_where_its_size_is_judged():
    values = -0.03 + 0.001 * np.linspace(-1.0, 1.0, 12)
    line = about_zero("s", "n", "1", mean_of(values, np.arange(12), 12), 12, 0.05, QUICK.intervals())
    drawn = picture(line)
    dot = float(drawn.split('class="dot" cx="')[1].split('"')[0])
    begin, end = (
        float(drawn.split('class="span" ')[1].split(f'{name}="')[1].split('"')[0]) for name in ("x1", "x2")
    )
    assert begin < dot < end


def test_tasks_find_what_they_read_from_any_folder():
    seen = []

    def ahead(task, items, name, progress, shared):
        seen.extend(path for item in items for path in (item.twin, item.archive, item.population))
        seen.extend(shared)
        raise StopIteration

    with pytest.raises(StopIteration):
        certify(
            SimpleNamespace(encoding=None),
            SimpleNamespace(path=Path("archive")),
            None,
            QUICK,
            SilentProgress(),
            twin_hash="",
            population=Path("drawn"),
            twin_path=Path("twin"),
            keep=SimpleNamespace(folder=Path("/kept"), ahead=ahead),
        )
    assert {path.name for path in seen} == {"twin", "archive", "drawn"}
    assert all(path.is_absolute() for path in seen)


def test_a_certificate_that_is_kept_elsewhere_is_one_of_this_very_twin(tmp_path, capsys):
    for name in ("twin", "other"):
        with writing(tmp_path / name, "twin", config={"name": name}):
            pass
        made_from = {"twin": read_manifest(tmp_path / name).content_hash}
        with writing(tmp_path / "kept" / name, "certificate", made_from=made_from, extra={"verdict": "pass"}):
            pass
    twin, kept = tmp_path / "twin", tmp_path / "kept"
    assert certification_in(certification_folder(twin)).verdict == "none"
    found = certification_in(certification_folder(twin, kept / "twin"))
    assert (found.passed, found.content_hash) == (True, read_manifest(kept / "twin").content_hash)
    command = ["train", str(twin), "--out", str(tmp_path / "policy")]
    for folder, told in (
        (kept / "other", "this certificate is of another twin"),
        (kept, "there is no certificate"),
    ):
        assert main([*command, "--certificate", str(folder)]) == 2
        assert told in capsys.readouterr().err
    assert not (tmp_path / "policy").exists()
