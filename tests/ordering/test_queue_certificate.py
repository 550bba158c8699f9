"""The twin of a queue as a product, and its certificate: what right and wrong ones are told, and what is refused."""

import datetime as dt
import json
from dataclasses import replace

import numpy as np
import pytest

from evaluation.certify.certificate import EXIT_STATUS
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Verdict
from evaluation.certify.persistence import (
    certification_folder,
    certification_in,
    folder_beside,
    load_certificate,
)
from evaluation.comparison.training_days import DaysConfig
from evaluation.problems.configuration import WeeksConfig
from evaluation.problems.ordering.certificate.certifying import certify_queue
from evaluation.problems.ordering.certificate.held_out import hold_out_weeks, weeks_for_rules
from evaluation.problems.ordering.certificate.replayed_weeks import WEEKS, fixed_rules, real_weeks
from evaluation.problems.ordering.certificate.workload import answer_lines, arrival_lines, jobs_trio
from evaluation.problems.ordering.fitting import training_days
from evaluation.problems.ordering.same_machine import FIT_POOL, refuse_other_machine
from evaluation.problems.ordering.weeks import begin_schedule, log_days
from logs_schema import Archive
from logs_schema.calendar import EPOCH_DATE
from logs_schema.errors import ConfigError, ProductError
from logs_schema.product import read_manifest, writing
from logs_schema.progress import SilentProgress
from tests.command import run_silently as run
from tests.ordering.making import alike_weeks
from twin.ordering.jobs import read_jobs
from twin.ordering.persistence import fit_queue, load_queue_twin
from twin.ordering.windows import chosen
from twin.placement.model import PlacementTwin

QUICK = CertifyConfig(max_weeks=6, num_copies=1, max_rows=400, num_replicates=200)
NO_RULES = replace(QUICK, rankings=False)
DAY_S = 86_400


@pytest.fixture(scope="module")
def made(queue_made):
    return queue_made


@pytest.fixture(scope="module")
def jobs(made):
    return read_jobs(Archive(made[0] / "archive"))


def certificate_of(folder, twin, days=None, config=QUICK):
    archive = Archive(folder / "archive")
    return certify_queue(twin, archive, days, config, SilentProgress(), twin_hash="a twin")


def verdicts(certificate):
    return {line.name: line.verdict for line in certificate.lines}


def test_a_log_of_one_pool_gives_a_twin_of_its_queue_and_says_so(made, tmp_path, capsys):
    folder, _ = made
    assert run("fit", folder / "archive", "--out", tmp_path / "twin") == 0
    assert "one pool only: nothing to place" in capsys.readouterr().out
    facts = read_manifest(tmp_path / "twin", "twin").extra
    assert (facts["problem"], facts["processors"], len(facts["train_days"])) == ("ordering", 16.0, 28)
    assert read_manifest(folder / "twin").content_hash == read_manifest(tmp_path / "twin").content_hash
    words = ("--problem", "ordering", "--processors", 24, "--out", tmp_path / "wide")
    assert run("fit", folder / "archive", *words) == 0
    assert load_queue_twin(tmp_path / "wide").pool.processors == 24.0


def test_a_twin_is_read_as_it_was_fitted(made, jobs):
    twin = load_queue_twin(made[0] / "twin")
    again = fit_queue(jobs, twin.pool, twin.first_day, twin.num_days)
    for one, two in zip(
        (*twin.population, *twin.past[:-2]), (*again.population, *again.past[:-2]), strict=True
    ):
        assert np.array_equal(one, two) or (np.isnan(one.astype(float)) == np.isnan(two.astype(float))).all()
    assert twin.past.origin_us == jobs.origin_us
    assert twin.past.arrival_s.max() < twin.anchor * DAY_S - jobs.origin_us / 1e6


def test_a_right_twin_fails_nowhere_and_carries_its_certificate(made):
    folder, status = made
    certificate = load_certificate(folder_beside(folder / "twin"))
    assert status == EXIT_STATUS[certificate.verdict]
    assert certificate.verdict is not Verdict.FAIL
    told = verdicts(certificate)
    # Six weeks of 140 jobs say little
    assert sum(one is Verdict.PASS for one in told.values()) > len(told) / 4
    assert told["rate by week"] is told["users by week"] is Verdict.PASS
    assert {line.section for line in certificate.lines} == {section.name for section in certificate.sections}
    assert len(certificate.days) == len(certificate.partners) == 42
    assert not set(certificate.days) & {*certificate.partners, *certificate.train_days}
    assert certification_in(certification_folder(folder / "twin")).verdict == certificate.verdict.value
    page = (folder / "report.html").read_text()
    assert "intervals draw the 6 weeks whole" in page
    assert "14 rules, best first" in page


@pytest.mark.slow
def test_the_same_seed_gives_the_same_certificate(made):
    folder, _ = made
    twin = load_queue_twin(folder / "twin")
    kept = load_certificate(folder_beside(folder / "twin")).to_json()
    again = certificate_of(folder, twin).to_json()
    assert again["lines"] == kept["lines"]
    assert again["sections"] == kept["sections"]


@pytest.mark.slow
def test_a_twin_whose_jobs_run_twice_as_long_fails(made):
    folder, _ = made
    twin = load_queue_twin(folder / "twin")
    wrong = twin._replace(population=twin.population._replace(run_s=2.0 * twin.population.run_s))
    certificate = certificate_of(folder, wrong, config=NO_RULES)
    told = verdicts(certificate)
    assert certificate.verdict is Verdict.FAIL
    assert told["Kolmogorov-Smirnov distance of run time over requested"] is Verdict.FAIL
    assert told["utilisation by week"] is Verdict.FAIL
    assert told["Kolmogorov-Smirnov distance of hour of day"] is not Verdict.FAIL


@pytest.mark.slow
def test_a_twin_of_half_the_submissions_fails(made, jobs):
    folder, _ = made
    twin = load_queue_twin(folder / "twin")
    thinned = chosen(jobs, np.arange(0, len(jobs.arrival_s), 2))
    wrong = fit_queue(thinned, twin.pool, twin.first_day, twin.num_days)
    told = verdicts(certificate_of(folder, wrong, config=NO_RULES))
    assert told["rate by week"] is Verdict.FAIL
    assert told["load asked for by week"] is Verdict.FAIL


def test_few_weeks_are_drawn_by_days_and_it_says_so(made, jobs):
    twin = load_queue_twin(made[0] / "twin")
    first = dt.date(1970, 1, 1) + dt.timedelta(days=twin.anchor + 3)
    days = [first + dt.timedelta(days=offset) for offset in range(16)]
    found = hold_out_weeks(jobs, twin, days, QUICK)
    assert found.weeks == (twin.anchor + 3, twin.anchor + 10)
    assert (found.num_units, found.unit_days) == (14, 1)
    assert "14 days" in found.about_units
    assert found.notes == ("2 of the requested days make no whole week: left out",)
    assert all(abs(one - week) >= 7 for one in found.partners for week in found.weeks)
    assert all((one - week) % 7 == 0 for one, week in zip(found.partners, found.weeks, strict=True))


def test_days_that_cannot_be_held_out_are_refused(made, jobs):
    twin = load_queue_twin(made[0] / "twin")
    trained = dt.date(1970, 1, 1) + dt.timedelta(days=twin.first_day)
    with pytest.raises(ConfigError, match="overlap"):
        hold_out_weeks(jobs, twin, [trained], QUICK)
    with pytest.raises(ConfigError, match="no whole week"):
        hold_out_weeks(jobs, twin, [dt.date(2030, 1, 1)], QUICK)


def test_what_is_of_the_other_problem_is_refused_by_name(made, tmp_path, capsys):
    folder, _ = made
    with pytest.raises(ProductError, match="of the problem 'ordering'"):
        PlacementTwin.load(folder / "twin")
    with writing(tmp_path / "placing", "twin") as out:
        (out / "encoding.json").write_text("{}")
    with pytest.raises(ProductError, match="of the problem 'placement'"):
        load_queue_twin(tmp_path / "placing")
    assert (
        run("fit", folder / "archive", "--problem", "placement", "--processors", 8, "--out", tmp_path / "t")
        == 2
    )
    assert "--problem ordering" in capsys.readouterr().err


def test_a_foreign_archive_and_a_damaged_twin_are_refused(made, tmp_path, capsys):
    folder, _ = made
    (tmp_path / "log.swf").write_text(alike_weeks(seed=1))
    assert run("import", "swf", tmp_path / "log.swf", "--out", tmp_path / "archive") == 0
    assert run("certify", folder / "twin", tmp_path / "archive") == 2
    assert "fitted on another archive" in capsys.readouterr().err
    assert run("fit", folder / "archive", "--out", tmp_path / "twin") == 0
    facts = json.loads((tmp_path / "twin" / "queue.json").read_text())
    (tmp_path / "twin" / "queue.json").write_text(json.dumps(facts | {"processors": 8}))
    with pytest.raises(ProductError, match="do not agree with the manifest"):
        load_queue_twin(tmp_path / "twin")


def test_another_machine_is_refused_by_name(made, tmp_path, capsys):
    folder, _ = made
    lines = (
        (folder / "log.swf").read_text().replace("; MaxProcs: 16", "; MaxProcs: 32").splitlines(keepends=True)
    )
    (tmp_path / "log.swf").write_text("".join(lines[:200]))
    assert run("import", "swf", tmp_path / "log.swf", "--out", tmp_path / "wide") == 0
    capsys.readouterr()
    for words in (
        ("certify", folder / "twin", tmp_path / "wide"),
        ("compare", tmp_path / "wide", folder / "twin"),
    ):
        extra = () if words[0] == "certify" else ("--out", tmp_path / "comparison")
        assert run(*words, *extra) == 2
        told = capsys.readouterr().err
        assert "are of different machines" in told
        assert "16 processors" in told
    facts = read_manifest(folder / "twin", "twin").extra
    archive, later = Archive(folder / "archive"), {"train_days": ["1999-01-01"]}
    refuse_other_machine(archive, folder / "twin", facts | {"processors": 8.0})  # days of the fit: counted
    refuse_other_machine(archive, folder / "twin", facts | later)
    with pytest.raises(ConfigError, match="do not fit the twin's pool") as refused:
        refuse_other_machine(archive, folder / "twin", facts | later | {"processors": 8.0})
    assert "one requests 11" in str(refused.value)
    as_before = {"processors": 8.0, "num_too_large": facts["num_jobs"] // 2}
    refuse_other_machine(archive, folder / "twin", facts | later | as_before)
    refuse_other_machine(archive, folder / "twin", facts | later | {FIT_POOL: 32.0})  # of the pool's own size


@pytest.mark.slow
def test_rules_are_left_out_where_nobody_asks_for_them(made):
    folder, _ = made
    told = verdicts(certificate_of(folder, load_queue_twin(folder / "twin"), config=NO_RULES))
    assert told["rank correlation with replay"] is Verdict.NOT_APPLICABLE
    assert told["rate by week"] is Verdict.PASS
    assert told["KL of wait"] is not Verdict.NOT_APPLICABLE


def test_what_nobody_can_know_of_users_who_hide_is_not_applicable(made, jobs):
    twin = load_queue_twin(made[0] / "twin")
    hidden = jobs._replace(agent=np.full_like(jobs.agent, -1))
    start_s = begin_schedule(hidden, twin.pool, WEEKS.warm)
    found, rules = hold_out_weeks(hidden, twin, None, QUICK), fixed_rules(twin.pool, rankings=False)
    real, other = (
        real_weeks(hidden, start_s, rules, twin.pool, days, found) for days in (found.weeks, found.partners)
    )
    lines = arrival_lines(real, other, other, found, 16.0, QUICK)
    lines += answer_lines(jobs_trio(real, other, other, found.num_units), QUICK)
    silent = [line.name for line in lines if line.verdict is Verdict.NOT_APPLICABLE]
    assert len(lines) == 10
    assert len(silent) == 3
    assert all("user" in name for name in silent)
    assert all(line.judged.value == 0.0 for line in lines if line.name not in silent)


def test_training_days_leave_eight_weeks_where_the_log_has_them(jobs):
    begin, end = log_days(jobs)
    weeks = WeeksConfig()
    assert training_days(jobs, DaysConfig(), weeks) == (end - 59 - 28, 28)
    assert training_days(jobs, DaysConfig(num_days=60), weeks) == (begin, 60)
    first, last = dt.date(2001, 10, 1), dt.date(2001, 10, 10)
    assert training_days(jobs, DaysConfig(first_day=first, last_day=last), weeks)[1] == 10
    assert training_days(jobs, DaysConfig(last_day=last, num_days=7), weeks) == (
        (last - EPOCH_DATE).days - 6,
        7,
    )
    with pytest.raises(ConfigError, match="do not lie within the log"):
        training_days(jobs, DaysConfig(last_day=last, num_days=70), weeks)
    with pytest.raises(ConfigError, match="too few for 5000 of training and 10 of tests"):
        training_days(jobs, DaysConfig(num_days=5000), weeks)


@pytest.mark.slow
def test_of_many_jobs_the_rules_are_played_in_some_weeks_and_the_page_says_so(made, jobs, capsys):
    folder, twin = made[0], load_queue_twin(made[0] / "twin")
    config = replace(QUICK, num_copies=3)
    found = hold_out_weeks(jobs, twin, None, config)
    assert weeks_for_rules(jobs, found, config) == (found, 3, ())
    per_week = np.mean([np.sum(jobs.arrival_s // DAY_S // 7 == week) for week in range(4, 10)])
    for max_played, num_weeks, num_copies in (
        (3.3 * 6 * per_week, 6, 1),
        (3.3 * 2 * per_week, 2, 1),
        (1, 1, 1),
    ):
        kept, copies, notes = weeks_for_rules(jobs, found, replace(config, max_played=int(max_played)))
        assert (len(kept.weeks), copies) == (num_weeks, num_copies)
        assert set(zip(kept.weeks, kept.partners, strict=True)) <= set(
            zip(found.weeks, found.partners, strict=True)
        )
        assert f"played in {num_weeks} of the 6 held-out weeks" in notes[0]
    whole = certificate_of(folder, twin, config=QUICK)
    some = certificate_of(folder, twin, config=replace(QUICK, max_played=int(3.3 * 2 * per_week)))
    assert any("all rules are played in 2 of the 6 held-out weeks" in note for note in some.notes)
    assert not any("all rules are played" in note for note in whole.notes)
    kept = [(line.name, line.value) for line in some.lines if line.section != "values of fixed rules"]
    assert kept == [
        (line.name, line.value) for line in whole.lines if line.section != "values of fixed rules"
    ]
    (ranked,) = (line for line in some.lines if line.name == "rank correlation with replay")
    assert ranked.value.num_units == 14  # days of two weeks
