"""Figures of the report: labels, roles, names beside lines."""

import datetime as dt
import re
from dataclasses import replace
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import compare
from evaluation.comparison.entries import JudgeFacts, PolicyFacts, ShiftFacts
from evaluation.comparison.metrics import ON_TIME
from evaluation.comparison.report import Report, render
from evaluation.comparison.report.overview import NAME_GAP, apart, figure_file, panels
from evaluation.comparison.report.plots import COLOURS, series_style
from evaluation.comparison.report.roles import strong_policies
from evaluation.comparison.shifts import ShiftPlan, TestDays
from evaluation.judges.descriptions import LADDER, POLICIES
from evaluation.problems.placement import reporting
from evaluation.problems.placement.reporting import learning_charts
from offline_rl.recipes.cloning import evaluations_of
from tests.evaluation.made_reports import HOSTILE, made_comparison, made_run
from twin.fitting_loop import fit_keeping_best


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
        runs,
        archive={},
        train_days=[],
        unit_kind="days",
        policies=[*POLICIES, *own],
        judges=[JudgeFacts("replay", "made up")],
        shifts=[ShiftFacts(0, (), 1), ShiftFacts(7, (), 1)],
        metrics=(ON_TIME,),
        config=IntervalConfig(num_replicates=200),
    )


def names_beside_lines(svg, comparison):
    """Name -> height of its text, of the policies that are named in a panel."""
    found = re.findall(r"<text[^>]*(?:y=|translate\(\S+ )\"?(-?[\d.]+)[^>]*>([^<]*)</text>", svg)
    known = {policy.name for policy in comparison.policies}
    return {name: float(height) for height, name in found if name in known}


def test_few_policies_stand_out_each_in_its_own_way_and_all_others_are_grey(crowded):
    strong = strong_policies(crowded)
    assert [one.policy for one in strong] == [
        LADDER,
        "bc_greedy",
        "history",
        "size_intervals",
        "mine 0",
        "mine 1",
    ]
    evaluations = {tuple(series_style(one.style).items()) for one in strong}
    assert len(evaluations) == len(strong) <= len(COLOURS) < len(crowded.policies)
    (panel,) = panels(crowded).values()
    assert set(names_beside_lines(panel, crowded)) == {one.policy for one in strong}
    assert panel.count("stroke: var(--others); stroke-width: 0.8") == len(crowded.policies) - len(strong)
    assert f"the other {len(crowded.policies) - len(strong)} policies" in render(Report("Many", crowded))


def test_a_role_looks_the_same_with_and_without_policies_of_a_users_own(crowded):
    evaluations = []
    for num_own in (0, 1, 3):
        kept = tuple(one for one in crowded.policies if not one.name.startswith("mine"))
        own = tuple(one for one in crowded.policies if one.name.startswith("mine"))[:num_own]
        strong = strong_policies(replace(crowded, policies=(*kept, *own)))
        evaluations.append({one.policy: one.style for one in strong})
    none, one, three = evaluations
    assert none.items() < one.items()
    assert set(one) - set(none) == {"mine 0"}
    assert three == {name: style for name, style in one.items() if name != "twin"} | {"mine 1": one["twin"]}


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


@pytest.mark.parametrize(
    ("num_updates", "done"), [(10, 10), (25, 25), (30, 30), (31, 30), (75, 75), (99, 96)]
)
def test_the_clones_curve_stands_over_the_steps_of_its_looks(num_updates: int, done: int) -> None:
    """Every evaluation comes after as many steps, and there are no more in all than were asked for."""
    (num_evaluations, look_every), steps = evaluations_of(num_updates), []
    fit_keeping_best(
        0,
        lambda state, first, count: (state, (), 1.0),
        num_evaluations * look_every,
        look_every,
        on_evaluation=lambda fit: steps.append(int(fit.done)),
    )
    assert steps == list(range(look_every, done + 1, look_every))
    assert look_every <= 25
    report = SimpleNamespace(held_out_log_likelihood=np.zeros((1, 1)))
    schedulers = SimpleNamespace(clone_curve=np.ones((len(steps), 2)), num_trained=0)
    _, clone = learning_charts(report, schedulers, 50, (), num_updates)  # type: ignore[arg-type]
    assert [curve.x for curve in clone.curves] == [tuple(steps)] * 2


def test_calibration_says_which_days_it_is_of(monkeypatch):
    """The first shift that has test days, which need not be that of 0 days."""
    day = dt.date(2024, 1, 9)
    plan = ShiftPlan((dt.date(2024, 1, 1),), (TestDays(0, (), 0, "no day"), TestDays(7, (day,), 600)))
    twin = SimpleNamespace(encoding=None, model=None, config=None)
    monkeypatch.setattr(reporting, "encode_days", lambda _archive, _encoding, days, **_: list(days))
    monkeypatch.setattr(reporting, "labelled_offers", lambda windows, _: windows)
    monkeypatch.setattr(reporting, "calibration_charts", lambda *given: given[-2:])
    assert reporting.shifted_calibration(None, twin, plan) == ([day], "Test days of shift 7d")
