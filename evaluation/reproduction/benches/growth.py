"""How the memory and the processor time of commands grow with the days they are given, and a picture of it.

Every command runs in a process of its own, as a user's does, on the first days of one archive; the operating system
says what it took. The exponent `a` of `cost ~ requests^a` is fitted by least squares in logarithms: 0 does not grow, 1
is linear.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from logs_schema import Archive
from logs_schema.disk import write_aside
from logs_schema.errors import ConfigError
from logs_schema.hashing import json_hash
from logs_schema.progress import Progress

KIB_PER_MIB = 1024.0
LAUNCHER = """
import json, os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, used = os.wait4(process.pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_maxrss, used.ru_utime + used.ru_stime]))
"""
"""A small process between this one and the command: a process counts the memory of the one that started it, too."""
STEPS = ("survey", "fit", "certify", "compare", "train", "generate")
NEED_TWIN = frozenset(STEPS) - {"survey", "fit"}
ANSWERED = {"certify": (0, 3, 4)}
"""Exit statuses besides 0 with which a command has done its work."""


@dataclass(frozen=True)
class GrowthConfig:
    """What to measure.

    Attributes:
        days: Numbers of days, ascending.
        steps: Commands of survey, fit, certify, compare, train and generate, in this order; all but survey need the
            twin of fit, and survey two days.
        settings: More tables of the commands' configuration, as TOML text without [days].
    """

    days: tuple[int, ...] = (1, 7, 28)
    steps: tuple[str, ...] = ("fit",)
    settings: str = ""

    def __post_init__(self) -> None:
        unknown = [step for step in self.steps if step not in STEPS]
        if unknown or not self.steps:
            raise ConfigError(f"steps {', '.join(self.steps)}", where="--steps", allowed=", ".join(STEPS))
        if (without := sorted(NEED_TWIN & set(self.steps))) and "fit" not in self.steps:
            raise ConfigError(f"{', '.join(without)} need a twin", where="--steps", allowed="fit beside them")
        if not self.days or min(self.days) < 1 or sorted(set(self.days)) != list(self.days):
            raise ConfigError(f"days {self.days}", where="--days", allowed="numbers of days, ascending")
        if not _steps_on(self, self.days[-1]):
            raise ConfigError(
                f"a survey of {self.days[-1]} day", where="--days", allowed="2 days or more beside it"
            )


class Cost(NamedTuple):
    """What one command took."""

    step: str
    num_days: int
    num_requests: int
    peak_mib: float  # largest resident memory of its process
    processor_s: float
    wall_s: float


class Growth(NamedTuple):
    """What was measured; exponents by step, of memory and of processor time."""

    costs: tuple[Cost, ...]
    memory_exponent: dict[str, float]
    time_exponent: dict[str, float]


def measure_growth(archive: Path, config: GrowthConfig, work: Path, progress: Progress) -> Growth:
    """Runs the commands on more and more days.

    Args:
        archive: Of the log.
        config: What to measure.
        work: Existing folder for what the commands write; what is measured there already, of this archive with these
            settings, is not measured again.
        progress: Where to show how far it is.

    Raises:
        ConfigError: Too few days, or a command failed.
    """
    log = Archive(archive)
    days = log.days("requests")
    if len(days) < config.days[-1]:
        raise ConfigError(
            f"the archive has {len(days)} days with requests",
            where=str(archive),
            allowed=f"{config.days[-1]} or more",
        )
    costs: list[Cost] = []
    made_from = json_hash({"archive": log.content_hash, "settings": config.settings})
    total = sum(len(_steps_on(config, num_days)) for num_days in config.days)
    with progress.stage("bench growth", total=total, unit="commands") as stage:
        for num_days in config.days:
            folder = work / f"days-{num_days}-{made_from[:8]}"
            folder.mkdir(exist_ok=True)
            settings = folder / "settings.toml"
            settings.write_text(f"{_days_table(days[:num_days])}\n{config.settings}")
            num_requests = log.num_rows_on("requests", days[:num_days])
            for step in _steps_on(config, num_days):
                stage(len(costs), text=f"{step}, {num_days} days")
                figures = folder / f"{step}.json"
                if not figures.exists():
                    words = _command(step, archive.absolute(), folder, settings, days[:num_days])
                    write_aside(figures, json.dumps(_measured(words, ANSWERED.get(step, (0,)))))
                costs.append(Cost(step, num_days, num_requests, *json.loads(figures.read_text())))
    return Growth(tuple(costs), *(_exponents(costs, name) for name in ("peak_mib", "processor_s")))


def _steps_on(config: GrowthConfig, num_days: int) -> list[str]:
    """The commands on so many days: a single one is no survey."""
    return [step for step in STEPS if step in config.steps and (step != "survey" or num_days > 1)]


def _days_table(days: Sequence[date]) -> str:
    return f"[days]\nfirst_day = {days[0]}\nlast_day = {days[-1]}\nnum_days = {len(days)}\n"


def _command(step: str, archive: Path, folder: Path, settings: Path, days: Sequence[date]) -> list[str]:
    twin, out, log = str(folder / "twin"), str(folder / step), str(archive)
    configured = ["--config", str(settings)]
    made = [*configured, "--replace"]
    words = {
        "survey": ["survey", log, "--first-day", str(days[0]), "--last-day", str(days[-1])],
        "fit": ["fit", log, "--out", twin, *made],
        "certify": ["certify", twin, log, "--keep", out, *configured],
        "compare": ["compare", log, twin, "--out", out, *made],
        "train": ["train", twin, "--out", out, "--force", *made],
        "generate": ["generate", twin, "--out", out, "--days", "1", "--replace"],
    }
    return [sys.executable, "-m", "evaluation.commands.cli", *words[step], "--no-progress"]


def _measured(words: Sequence[str], answered: Sequence[int] = (0,)) -> tuple[float, float, float]:
    """Peak memory in MiB, processor time and wall time of a command that may end with these statuses."""
    begun = time.monotonic()
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", LAUNCHER, *words],
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
    ) as launcher:
        try:
            output, errors = launcher.communicate()
        except BaseException:  # a signal: what is measured is not left to go on by itself
            os.killpg(launcher.pid, signal.SIGTERM)
            raise
    status, peak_kib, processor_s = json.loads(output)
    if status not in answered:
        where, message = " ".join(words[2:]), errors[-2000:]
        raise ConfigError(f"a command failed with status {status}", where=where, advice=message)
    return peak_kib / KIB_PER_MIB, processor_s, time.monotonic() - begun


def _exponents(costs: Sequence[Cost], name: str) -> dict[str, float]:
    found = {}
    for step in dict.fromkeys(one.step for one in costs):
        mine = [one for one in costs if one.step == step]
        if len(mine) > 1:
            size = np.log([one.num_requests for one in mine])
            found[step] = float(np.polyfit(size, np.log([getattr(one, name) for one in mine]), 1)[0])
    return found


def as_json(growth: Growth) -> dict[str, Any]:
    """What was measured as JSON values."""
    return growth._asdict() | {"costs": [one._asdict() for one in growth.costs]}


def as_text(growth: Growth) -> str:
    """What was measured as a table."""
    lines = [f"{'command':<10} {'days':>5} {'requests':>11} {'peak MiB':>9} {'processor s':>12}"]
    for one in growth.costs:
        lines.append(
            f"{one.step:<10} {one.num_days:>5} {one.num_requests:>11,} {one.peak_mib:>9,.0f} {one.processor_s:>12.1f}"
        )
    for step, exponent in growth.memory_exponent.items():
        lines.append(
            f"{step}: memory ~ requests^{exponent:.2f}, processor time ~ requests^{growth.time_exponent[step]:.2f}"
        )
    return "\n".join(lines)


def plot_growth(growth: Growth, path: Path) -> None:
    """Writes the picture: peak memory and processor time against requests, both in logarithms."""
    with matplotlib.rc_context({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9.0, 3.8), layout="constrained")
        panels = figure.subplots(1, 2)
        for axes, name, label in (
            (panels[0], "peak_mib", "peak memory (MiB)"),
            (panels[1], "processor_s", "processor time (s)"),
        ):
            for step in dict.fromkeys(one.step for one in growth.costs):
                mine = [one for one in growth.costs if one.step == step]
                axes.plot(
                    [one.num_requests for one in mine],
                    [getattr(one, name) for one in mine],
                    marker="o",
                    label=step,
                )
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("requests of the training days")
            axes.set_ylabel(label)
            axes.grid(alpha=0.4)
        panels[0].legend(frameon=False)
        figure.savefig(path)
