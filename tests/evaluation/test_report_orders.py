"""The pages of comparisons of orders: many policies, values far apart, one reference for table, plots and terminal."""

import re
from dataclasses import replace

import numpy as np
import pytest

from evaluation.commands.output import as_text
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import compare
from evaluation.comparison.entries import JudgeFacts, PolicyFacts, Run, ShiftFacts
from evaluation.comparison.metrics import BOUNDED_SLOWDOWN
from evaluation.comparison.report import Report, render
from evaluation.comparison.report.overview import panels
from evaluation.comparison.report.roles import strong_policies
from evaluation.comparison.tabulation import tabulate
from tests.evaluation.made import made_decisions

NAMES = ("ljf", *(f"rule {number}" for number in range(14)), "fcfs+easy", "sjf+easy", "index")


def made_run(policy):
    place = NAMES.index(policy)
    unit = np.repeat(np.arange(8), 20)
    wait_s = np.random.default_rng(0).uniform(50.0, 60.0, len(unit)) * (
        1_000.0 if place == 0 else 20.0 - place
    )
    return Run("replay", 0, policy, made_decisions(len(unit), unit=unit, wait_s=wait_s, agent=unit % 3))


@pytest.fixture(scope="module")
def comparison():
    kind = {"index": "trained"}
    return compare(
        [made_run(name) for name in NAMES],
        archive={},
        train_days=["2030-01-01"],
        unit_kind="weeks",
        policies=[PolicyFacts(name, kind.get(name, "baseline"), "made up") for name in NAMES],
        judges=[JudgeFacts("replay", "made up.")],
        shifts=[ShiftFacts(0, ("2030-01-02",), 160)],
        metrics=(BOUNDED_SLOWDOWN,),
        references=("sjf+easy", "fcfs+easy"),
        lead_reference="sjf+easy",
        config=IntervalConfig(num_replicates=200),
    )


def test_table_plots_and_terminal_refer_to_the_same_policy(comparison):
    page = render(Report("Orders", comparison))
    assert "compared with sjf+easy" in page
    assert set(re.findall(r"improvement in bounded_slowdown \[1\] over ([^,]+),", page)) == {"sjf+easy"}
    assert "against sjf+easy" in " ".join(as_text(tabulate(comparison)).split())
    other = replace(comparison, lead_reference="fcfs+easy")
    page = render(Report("Orders", other))
    assert "compared with fcfs+easy" in page
    assert set(re.findall(r"improvement in bounded_slowdown \[1\] over ([^,]+),", page)) == {"fcfs+easy"}
    assert "against fcfs+easy" in " ".join(as_text(tabulate(other)).split())


def test_what_learned_the_best_rule_and_the_reference_stand_out(comparison):
    strong = {one.policy: one.role for one in strong_policies(comparison)}
    assert strong == {"index": "exported by training", "sjf+easy": "the strongest rule"}
    other = replace(comparison, lead_reference="fcfs+easy")
    assert {one.policy for one in strong_policies(other)} == {"index", "sjf+easy", "fcfs+easy"}


def ticks_of(svg):
    """Values at the axis of a panel."""
    found = re.findall(r"(\N{MINUS SIGN}?[\d,.]+)</text>", svg)
    return {float(tick.replace(",", "").replace("\N{MINUS SIGN}", "-")) for tick in found}


def test_values_far_apart_stand_on_a_logarithmic_axis(comparison):
    (panel,) = panels(comparison).values()
    assert {10.0, 100.0} <= ticks_of(panel)
    (panel,) = panels(comparison, "sjf+easy").values()
    assert {0.0, -10.0, -100.0} <= ticks_of(panel)
    without = replace(comparison, policies=comparison.policies[1:])  # ljf
    (panel,) = panels(without).values()
    assert 100.0 not in ticks_of(panel)


def test_about_zero_no_axis_is_finer_than_intervals(comparison):
    """Values of 60, .5 and -.5: with intervals of .2 the axis is logarithmic, with those of 6 it is not."""

    def ticks(width):
        cells = []
        for place, one in enumerate(comparison.cells):
            value = 60.0 if one.policy == "ljf" else 0.5 * (-1) ** place
            cells.append(
                replace(
                    one, estimate=replace(one.estimate, value=value, low=value - width, high=value + width)
                )
            )
        (panel,) = panels(replace(comparison, cells=tuple(cells))).values()
        return ticks_of(panel)

    assert {1.0, 10.0} <= ticks(0.1)
    assert 1.0 not in ticks(3.0)
