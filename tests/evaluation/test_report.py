"""The report: complete, self-contained, escaped, and the same as its JSON. All numbers in it are made up."""

import json
import re
from dataclasses import replace

import pytest

from evaluation.commands.output import as_text
from evaluation.comparison.bootstrap import DifferenceVerdict
from evaluation.comparison.comparison import Comparison
from evaluation.comparison.formatting import FAR_MARK, interval, number
from evaluation.comparison.report import Report, render, write_report
from evaluation.comparison.report.overview import figure_file
from evaluation.comparison.report.verdict import verdict
from evaluation.comparison.report.words import standing_limits, summary
from evaluation.comparison.tabulation import tabulate
from evaluation.judges.descriptions import LADDER, POLICIES
from logs_schema.records import from_plain, to_plain
from tests.evaluation.made_reports import HOSTILE, made_comparison, made_report, parse


@pytest.fixture(scope="module")
def hostile():
    return render(made_report(HOSTILE))


def test_nothing_is_fetched_and_nothing_runs(plain):
    page = parse(plain)
    assert page.fetched == []
    assert page.scripts == 0
    assert "@import" not in plain
    assert re.findall(r"url\((?!#)", plain) == []


def test_every_jump_inside_the_page_lands_and_ids_do_not_clash(plain):
    page = parse(plain)
    assert {jump.removeprefix("#") for jump in page.jumps} <= set(page.ids)
    for target in set(re.findall(r"url\(#([^)]+)\)", plain)) | {jump[1:] for jump in page.jumps}:
        assert plain.count(f'id="{target}"') == 1


def test_what_logs_say_is_shown_and_never_obeyed(hostile):
    page = parse(hostile)
    assert page.scripts == 0
    assert "<script" not in hostile
    assert "&lt;script&gt;alert(" in hostile
    assert hostile.count("\\frac{1}{$") >= 5


def test_every_value_interval_and_number_of_units_is_on_the_page(plain):
    comparison = made_comparison()
    shown = 0
    for cell in comparison.cells:
        if cell.metric == "on_time" and cell.estimate.low is not None:
            found = cell.estimate
            bounds = interval(found)
            assert f"{number(found.value)}<small>{bounds}, {found.num_units} units</small>" in plain
            shown += 1
    assert shown == 4 * (2 + 3)


def test_what_cannot_be_said_is_said(plain):
    assert "no interval: 4 units are fewer than 6" in plain
    assert "there is only one site" in plain
    assert "not judged here" in plain
    assert "There are no values for 1 month" in plain
    assert '<th scope="row">facts.origin</th><td>not set</td>' in plain
    for heading in (
        "Not applicable",
        "Quarantine",
        "Configuration",
        "Seeds",
        "What these numbers cannot say",
    ):
        assert f">{heading}<" in plain


def test_what_training_hands_over_is_its_last_policy():
    assert [policy.name for policy in POLICIES if policy.kind == "trained"][-1] == LADDER


def test_one_table_of_the_judges_is_shown_at_a_time_without_a_script(plain):
    switch = plain[plain.index('class="switch"') : plain.index('id="trust"')]
    assert re.findall(r'id="(judge-\d)"( checked)?>', switch) == [("judge-1", " checked"), ("judge-2", "")]
    assert re.findall(r'<label for="(judge-\d)">(\w+)<', switch) == [
        ("judge-1", "replay"),
        ("judge-2", "twin"),
    ]
    assert switch.count("<table") == 2
    assert ".switch > input:checked + label + .wide { display: block; }" in plain


def test_the_picture_comes_first_then_the_verdict_in_two_sentences(plain):
    first, second = verdict(made_comparison())
    assert first.startswith(
        "Judged by replay, which borrows 60 % of its outcomes from other requests, ppo is better than bc_greedy, "
        "history and random after 0 days and 1 week; "
        "it is not distinguishable from bc_greedy, history and random after 1 day (on_time after 1 week: ppo "
    )
    assert second == "Confirmed of these 9 verdicts: 9 by twin."
    assert plain.index("<svg") < plain.index(first) < plain.index(second) < plain.index("<table")


def test_the_verdict_is_that_of_the_first_judge_that_does_not_guess():
    comparison = made_comparison()

    def guessing(*judges):
        tallies = [
            replace(one, out_of_support=0.6 if (one.judge, one.policy) in judges else 0.0)
            for one in comparison.tallies
        ]
        return verdict(replace(comparison, tallies=tuple(tallies)))[0]

    assert guessing().startswith("Judged by replay, which borrows")
    assert guessing(("replay", "ppo")).startswith("Judged by twin, ppo is")
    assert guessing(("replay", "bc_greedy")).startswith("Judged by twin, ppo is")
    assert guessing(("replay", "ppo"), ("twin", "ppo")).startswith(
        f"Judged by replay{FAR_MARK}, which borrows"
    )


def test_warnings_stand_before_the_picture():
    page = render(replace(made_report(), warnings=(f"Beware of {HOSTILE}.",)))
    assert "Beware of &lt;script&gt;" in page[: page.index("<svg")]


def test_the_verdict_says_where_judges_part():
    comparison = made_comparison()
    other = {DifferenceVerdict.BETTER: DifferenceVerdict.WORSE}

    def turned(one):
        is_turned = one.judge == "twin" and one.policy == "ppo" and one.reference == "history"
        return replace(one, verdict=other.get(one.verdict, one.verdict)) if is_turned else one

    apart_ = replace(comparison, differences=tuple(map(turned, comparison.differences)))
    assert verdict(apart_)[1] == "The verdicts on history are reversed by twin."
    alone = replace(comparison, judges=comparison.judges[:1])
    assert verdict(alone)[1] == "No other judge has verdicts on these differences."


def test_table_figure_and_terminal_refer_to_the_same_policy(plain):
    assert made_comparison().reference() == "bc_greedy"
    assert "compared with bc_greedy: " in plain
    assert "improvement in on_time [share] over bc_greedy," in plain
    assert "against bc_greedy" in " ".join(as_text(tabulate(made_comparison())).split())


def test_every_judge_has_its_sentences():
    sentences = summary(made_comparison())
    assert len(sentences) == 2
    assert sentences[0].startswith(
        "Judged by replay, ppo is better than bc_greedy, history and random after 0 days and 1 week; "
        "it is not distinguishable from them after 1 day (on_time, where higher is better, after 1 week: +"
    )
    assert "after 1 month: +" in sentences[1]


def test_json_says_the_same_and_reads_back(tmp_path, plain):
    report = made_report()
    page, data = write_report(report, tmp_path)
    assert page.read_text(encoding="utf-8") == plain
    assert (tmp_path / "comparison.svg").read_text(encoding="utf-8") == figure_file(report.comparison)
    read = json.loads(data.read_text(encoding="utf-8"))
    assert Comparison.from_json(read["comparison"]) == report.comparison
    assert to_plain(from_plain(Report, read)) == read


def test_a_bare_report_renders():
    text = render(Report("Bare", made_comparison()))
    parse(text)
    assert "No twin was fitted" in text
    assert "No row was rejected" not in text
    assert "Not looked at" in text
    assert "No row was rejected" in render(Report("Bare", made_comparison(), quarantine=()))


def test_a_guess_is_marked_in_table_summary_and_limits():
    comparison = made_comparison()
    silent = [sentence for sentence in summary(comparison) if FAR_MARK in sentence]
    assert silent == []
    tallies = [
        replace(
            one,
            out_of_support=0.6 if (one.judge, one.shift_days, one.policy) == ("replay", 7, "ppo") else 0.0,
        )
        for one in comparison.tallies
    ]
    guessed = replace(comparison, tallies=tuple(tallies))
    *_, last = said = summary(guessed)
    assert any("Judged by replay, ppo" in one and f"1 week{FAR_MARK}" in one for one in said)
    assert not any(FAR_MARK in one for one in said if "Judged by twin" in one)
    assert last.startswith(f"{FAR_MARK} a guess")
    assert verdict(guessed)[0].startswith("Judged by twin, ppo")
    assert FAR_MARK not in verdict(comparison)[0]
    page = render(replace(made_report(), comparison=guessed))
    value = number(guessed.cell("replay", 7, "ppo", "on_time").value)
    assert f"{value}{FAR_MARK}<small>" in page
    assert "hardly ever took for the service or the queue" in page
    assert f"{FAR_MARK} a guess" in as_text(tabulate(guessed))


@pytest.mark.parametrize(
    ("unit_kind", "said"),
    [
        ("days", "the variation between days like these"),
        ("blocks of consecutive requests within a day / days simulated in the truth", "not from day to day"),
        ("episodes of two hours", "not of a day that these share"),
        ("runs", "not of a day that these share"),
        ("half weeks of arrivals, by the calendar", "the variation between such units"),
    ],
)
def test_no_interval_is_said_to_cover_more_than_its_units_show(unit_kind, said):
    limits = standing_limits(replace(made_comparison(), unit_kind=unit_kind))
    assert said in limits[0]
    assert ("days like these" in limits[0]) == (unit_kind == "days")


def test_the_log_s_agreement_with_itself_says_nothing_of_the_policies():
    told = [one for one in standing_limits(made_comparison()) if "are those of the log" in one]
    assert told[0].startswith("Between 0.400 and 0.400 of a policy's decisions")


def test_how_far_the_judges_can_be_believed_stands_on_the_page(plain):
    section = plain[plain.index('id="trust"') : plain.index('id="metrics"')]
    header = re.findall(r"<th[^>]*>(.*?)</th>", section)
    assert header.index("rank correlation") == 2  # in sight on narrow windows
    for figure in ("0.510", "0.530", "0.020", "0.0215", "0.0123", "0.800"):
        assert figure in section


def test_the_terminal_says_why_there_is_no_interval():
    text = as_text(tabulate(made_comparison()))
    reasons = [line for line in text.splitlines() if line.startswith("note: no interval")]
    assert reasons == ["note: no interval: 4 units are fewer than 6 (replay after 1 day, twin after 1 day)"]
