"""The report: complete, self-contained, escaped, and the same as its JSON. All numbers in it are made up."""

import json
import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

from evaluation.commands.output import as_text
from evaluation.comparison.bootstrap import DifferenceVerdict, IntervalConfig
from evaluation.comparison.comparison import Comparison, compare
from evaluation.comparison.entries import JudgeFacts, JudgeTrust, PolicyFacts, Run, ShiftFacts
from evaluation.comparison.formatting import FAR_MARK, interval, number
from evaluation.comparison.metrics import ON_TIME
from evaluation.comparison.report import (
    CapabilityRow,
    Chart,
    Curve,
    Fact,
    Rejected,
    Report,
    render,
    write_report,
)
from evaluation.comparison.report.overview import NAME_GAP, apart, figure_file, panels
from evaluation.comparison.report.plots import COLOURS, series_style
from evaluation.comparison.report.roles import strong_policies
from evaluation.comparison.report.verdict import verdict
from evaluation.comparison.report.words import summary
from evaluation.comparison.tabulation import tabulate
from evaluation.judges.descriptions import LADDER, POLICIES
from logs_schema.records import from_plain, to_plain
from tests.evaluation.made import made_decisions

HOSTILE = '<script>alert("x")</script> $\\frac{1}{$ & "quoted"'
QUALITY = {"random": 0.45, "history": 0.3, "bc_greedy": 0.25, "ppo": 0.12}
SHIFTS = (0, 1, 7, 30)


def made_run(judge, shift, policy, late, num_units):
    generator = np.random.default_rng([shift, num_units])
    unit = np.repeat(np.arange(num_units), 60)
    draw = generator.random(len(unit))
    hard = generator.uniform(0.0, 0.25, num_units)[unit]
    late_here = draw < late + hard + 0.004 * shift
    wait_s = np.where(late_here, 400.0, 40.0 * draw)
    lacking = {"sites": "there is only one site", "answers": "the log records no answers"}
    decisions = made_decisions(len(unit), unit=unit, wait_s=wait_s, agent=unit % 5, missing=lacking)
    return Run(
        judge, shift, policy, decisions, agreement=1.0 if policy == "history" else 0.4, num_overflow=shift
    )


@cache
def made_comparison(hostile=""):
    names = {**QUALITY, **({hostile: 0.3} if hostile else {})}
    runs = [
        made_run(judge, shift, policy, late, num_units=4 if shift == 1 else 14)
        for judge in ("replay", "twin")
        for shift in SHIFTS
        for policy, late in names.items()
        if not (judge == "replay" and shift == 30)
    ]
    kinds = {"ppo": "trained", "bc_greedy": "imitation", "history": "history"}
    return compare(
        runs,
        archive={
            "name": f"made-up numbers {hostile}",
            "requests": 12_345,
            "facts": {"origin": None, "notes": []},
        },
        train_days=["2030-01-01", "2030-01-14"],
        unit_kind="blocks of consecutive requests within a day",
        policies=[PolicyFacts(name, kinds.get(name, "baseline"), f"the made-up {name}") for name in names],
        judges=[JudgeFacts("replay", "made-up replay."), JudgeFacts("twin", "made-up twin.")],
        shifts=[
            ShiftFacts(
                shift,
                () if shift == 30 else ("2030-01-15", "2030-01-16"),
                0 if shift == 30 else 840,
                f"made up {hostile}",
            )
            for shift in SHIFTS
        ],
        trust=[JudgeTrust("twin", 0, 0.51, 0.53, 0.0215, 0.0123, 0.8, 5)],
        notes=[f"a made-up note {hostile}"],
        config=IntervalConfig(num_replicates=300),
    )


def made_report(hostile=""):
    steps = tuple(float(step) for step in range(0, 2000, 50))
    grid = tuple(np.linspace(0.0, 1.0, 11))
    fall = Curve(f"training days {hostile}", steps, tuple(3.0 * np.exp(-np.array(steps) / 500) - 1.0))
    held = Curve("held-out days", steps, tuple(3.0 * np.exp(-np.array(steps) / 600) - 0.8))
    return Report(
        title=f"A made-up report {hostile}",
        comparison=made_comparison(hostile),
        fit=(Fact("held-out log likelihood", "\N{MINUS SIGN}1.234", "nats per answer", "higher is better"),),
        calibration=(
            Chart(
                "Calibration of the wait",
                "nominal probability",
                "observed share of waits below",
                (Curve("twin", grid, tuple(np.array(grid) ** 1.1)), Curve("marginal", grid, grid[::-1])),
                note=f"On the dashed line the twin is calibrated. {hostile}",
                diagonal=True,
            ),
        ),
        learning=(Chart("Loss of the answers", "gradient steps", "loss [nats per answer]", (fall, held)),),
        capabilities=(CapabilityRow("deadlines", "partly", 0.4321, f"made up {hostile}"),),
        quarantine=(Rejected("requests", f"below:requested_run_s {hostile}", 2),),
        configuration={"train": {"algorithm": "ppo", "num_updates": 200}, "notes": hostile},
        hashes={"archive": "a" * 64},
        seeds={"train": 7},
        limits=("A made-up limit.",),
    )


class Page(HTMLParser):
    """Checks that elements nest and collects what a browser would fetch, run, or jump to."""

    VOID = ("meta", "br", "img", "link", "input")

    def __init__(self):
        super().__init__()
        self.open, self.fetched, self.scripts, self.ids, self.jumps = [], [], 0, [], []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.scripts += tag == "script" or any(name.startswith("on") for name in attributes)
        self.ids += [attributes["id"]] if "id" in attributes else []
        for name in ("src", "href", "xlink:href"):
            link = attributes.get(name)
            if link is not None:
                (self.jumps if link.startswith("#") else self.fetched).append(link)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def plain():
    return render(made_report())


@pytest.fixture(scope="module")
def hostile():
    return render(made_report(HOSTILE))


def parse(text):
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page


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


def test_plots_carry_labels_with_units_and_follow_the_page(plain):
    assert plain.count("<svg") == 2 + 2 + 2
    for label in (
        "Across: time between training and test days.",
        "judged by twin",
        "loss [nats per answer]",
        "over bc_greedy",
    ):
        assert label in plain
    assert "currentColor" in plain
    assert "#010203" not in plain


@pytest.fixture(scope="module")
def crowded():
    """All policies of the house and three of a user's own, by one judge; the trained ones nearly alike."""
    names = [policy.name for policy in POLICIES]
    own = [PolicyFacts(f"mine {number}", "user", "made up") for number in range(3)]
    late = {name: 0.7 - 0.02 * place for place, name in enumerate(names)} | {LADDER: 0.2, "twin": 0.21}
    runs = [
        made_run("replay", shift, policy.name, late.get(policy.name, 0.4), 8)
        for shift in (0, 7)
        for policy in (*POLICIES, *own)
    ]
    return compare(
        runs, archive={}, train_days=[], unit_kind="days", policies=[*POLICIES, *own],
        judges=[JudgeFacts("replay", "made up")], shifts=[ShiftFacts(0, (), 1), ShiftFacts(7, (), 1)],
        metrics=(ON_TIME,), config=IntervalConfig(num_replicates=200),
    )  # fmt: skip


def names_beside_lines(svg, comparison):
    """Name -> height of its text, of the policies that are named in a panel."""
    found = re.findall(r"<text[^>]*(?:y=|translate\(\S+ )\"?(-?[\d.]+)[^>]*>([^<]*)</text>", svg)
    known = {policy.name for policy in comparison.policies}
    return {name: float(height) for height, name in found if name in known}


def test_few_policies_stand_out_each_in_its_own_way_and_all_others_are_grey(crowded):
    strong = strong_policies(crowded)
    assert [one.policy for one in strong] == [
        LADDER, "bc_greedy", "history", "size_intervals", "mine 0", "mine 1",
    ]  # fmt: skip
    looks = {tuple(series_style(one.style).items()) for one in strong}
    assert len(looks) == len(strong) <= len(COLOURS) < len(crowded.policies)
    (panel,) = panels(crowded).values()
    assert set(names_beside_lines(panel, crowded)) == {one.policy for one in strong}
    assert panel.count("stroke: var(--others); stroke-width: 0.8") == len(crowded.policies) - len(strong)
    assert f"the other {len(crowded.policies) - len(strong)} policies" in render(Report("Many", crowded))


def test_a_role_looks_the_same_with_and_without_policies_of_a_users_own(crowded):
    looks = []
    for num_own in (0, 1, 3):
        kept = tuple(one for one in crowded.policies if not one.name.startswith("mine"))
        own = tuple(one for one in crowded.policies if one.name.startswith("mine"))[:num_own]
        strong = strong_policies(replace(crowded, policies=(*kept, *own)))
        looks.append({one.policy: one.style for one in strong})
    none, one, three = looks
    assert none.items() < one.items()
    assert set(one) - set(none) == {"mine 0"}
    assert three == {name: style for name, style in one.items() if name != "twin"} | {"mine 1": one["twin"]}


def test_what_training_hands_over_is_its_last_policy():
    assert [policy.name for policy in POLICIES if policy.kind == "trained"][-1] == LADDER


def test_names_beside_lines_do_not_overlap(crowded):
    (panel,) = panels(crowded).values()
    heights = sorted(names_beside_lines(panel, crowded).values())
    assert len(heights) == 6
    assert min(np.diff(heights)) > 10.0  # the size of their font


def test_names_are_moved_no_further_than_it_takes():
    np.testing.assert_allclose(apart([0.9, 0.1, 0.5], 0.1, 0.0, 1.0), [0.9, 0.1, 0.5])
    np.testing.assert_allclose(apart([0.5, 0.5], 0.1, 0.0, 1.0), [0.45, 0.55])
    np.testing.assert_allclose(apart([0.99, 1.0, 0.2], 0.1, 0.0, 1.0), [0.9, 1.0, 0.2])
    generator = np.random.default_rng(0)
    for _ in range(50):
        wanted = generator.random(7) ** 3
        moved = apart(list(wanted), NAME_GAP, 0.02, 0.98)
        assert (np.argsort(moved) == np.argsort(wanted)).all()
        assert np.diff(np.sort(moved)).min() > NAME_GAP - 1e-9
        assert min(moved) >= 0.02 - 1e-9
        assert max(moved) <= 0.98 + 1e-9


def test_the_figure_is_a_file_of_its_own_that_runs_and_fetches_nothing():
    text = figure_file(made_comparison(HOSTILE))
    root = ElementTree.fromstring(text)
    tags = [element.tag.rpartition("}")[2] for element in root.iter()]
    assert tags.count("svg") == 1 + 2
    assert "script" not in tags
    assert not any(name.startswith("on") for element in root.iter() for name in element.attrib)
    links = [value for one in root.iter() for name, value in one.attrib.items() if name.endswith("href")]
    assert all(link.startswith("#") for link in links)
    assert "prefers-color-scheme:dark" in text
    notes = [element.text for element in root if element.get("class") == "note"]
    assert notes[-1].endswith("grey: the other policy.")
    assert max(map(len, notes)) < 60  # within the width of one panel


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
        "Judged by replay, ppo is better than bc_greedy, history and random after 0 days and 1 week; "
        "it is not distinguishable from bc_greedy, history and random after 1 day (on_time after 1 week: ppo "
    )
    assert second == "The verdicts are confirmed by twin."
    assert plain.index("<svg") < plain.index(first) < plain.index(second) < plain.index("<table")


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


def test_the_same_report_gives_the_same_bytes(plain):
    assert render(made_report()) == plain


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
    assert verdict(guessed)[0].startswith(f"Judged by replay{FAR_MARK}, ppo")
    assert FAR_MARK not in verdict(comparison)[0]
    page = render(replace(made_report(), comparison=guessed))
    value = number(guessed.cell("replay", 7, "ppo", "on_time").value)
    assert f"{value}{FAR_MARK}<small>" in page
    assert "hardly ever took for the service" in page
    assert f"{FAR_MARK} a guess" in as_text(tabulate(guessed))


def test_how_far_the_judges_can_be_believed_stands_on_the_page():
    page = render(made_report())
    section = page[page.index('id="trust"') : page.index('id="metrics"')]
    header = re.findall(r"<th[^>]*>(.*?)</th>", section)
    assert header.index("rank correlation") == 2  # in sight on narrow windows
    for figure in ("0.510", "0.530", "0.020", "0.0215", "0.0123", "0.800"):
        assert figure in section
