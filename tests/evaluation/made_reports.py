"""A report whose numbers are made up, and a parser of its page."""

from functools import cache
from html.parser import HTMLParser

import numpy as np

from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.comparison.comparison import compare
from evaluation.comparison.entries import JudgeFacts, JudgeTrust, PolicyFacts, Run, ShiftFacts
from evaluation.comparison.report import CapabilityRow, Chart, Curve, Fact, Rejected, Report
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


def parse(text):
    page = Page()
    page.feed(text)
    page.close()
    assert page.open == []
    return page
