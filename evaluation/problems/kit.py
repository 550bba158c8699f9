"""What a problem brings along: one record a problem, through which commands and jobs reach it.

A *kit* holds everything that `fit, certify, train, compare, generate, export, refresh` and `run` need of a problem.
Each step is described once, as a `StepPlan`: the single command makes it into a product folder, a job makes it a step,
and both depend on the same settings and the same version of the code. No command knows a problem by name.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evaluation.certify.certificate import Certificate
from evaluation.certify.config import CertifyConfig
from evaluation.comparison.comparison import Comparison
from evaluation.configuration import RunConfig
from evaluation.jobs.job import Step
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.user_policies import UserPolicy
from evaluation.problems.refresh_parts import RefreshParts
from logs_schema import Archive
from logs_schema.errors import ConfigError, SchedtwinError
from logs_schema.progress import Progress
from logs_schema.records import to_plain

Inputs = Mapping[str, Path]
"""Name -> path of what a step reads: "archive", "twin", "policy", "certificate"."""
Facts = Mapping[str, Any]
"""What goes into a product's manifest."""
Part = TypeVar("Part")
OWN_STEPS = ("train", "compare", "export", "generate", "refresh", "run")
"""Commands that a problem takes part in where its kit has the field of that name."""


class ProblemOptions(NamedTuple):
    """What the command line says of the problem; None where it says nothing."""

    problem: str | None = None
    processors: float | None = None
    pool: str | None = None


@dataclass(frozen=True)
class StepPlan:
    """One step, described once for the single command, for `run` and for `refresh`.

    Attributes:
        kind: Of the product that it makes.
        build: (folder, inputs, progress) -> facts; writes the product's files into the empty folder.
        settings: Everything it depends on besides its inputs and its seed, JSON or dataclasses.
        seed: Of its randomness, or None.
        code_version: Raised when code changes what it makes.
    """

    kind: str
    build: Callable[[Path, Inputs, Progress], Facts]
    settings: Any
    seed: int | None = None
    code_version: int = 1

    def step(self, name: str, inputs: Sequence[str], resolve: Callable[[Inputs], Inputs] = dict) -> Step:
        """It as a step of a job.

        Args:
            name: Of the step and its product's folder.
            inputs: Names of earlier steps.
            resolve: Products of those steps -> what `build` reads (an archive lies in a folder of its product).
        """

        def build(out: Path, products: Inputs, progress: Progress) -> Facts:
            return self.build(out, resolve(products), progress)

        return Step(
            name, self.kind, build, inputs=tuple(inputs), config=to_plain(self.settings), seed=self.seed,
            code_version=self.code_version,
        )  # fmt: skip


class Certifier(NamedTuple):
    """How a twin of the problem is certified.

    Attributes:
        certify: (archive, held-out days or None, settings, progress) -> certificate.
        refused: (error, archive, settings) -> the certificate that says why nothing was measured.
        in_parts: The same as `certify`, (..., unfinished) with parts that are kept and that tasks make; None where a
            certificate is made at once.
    """

    certify: Callable[[Archive, Sequence[dt.date] | None, CertifyConfig, Progress], Certificate]
    refused: Callable[[SchedtwinError, Archive, CertifyConfig], Certificate]
    in_parts: (
        Callable[[Archive, Sequence[dt.date] | None, CertifyConfig, Progress, Unfinished], Certificate] | None
    ) = None


@dataclass(frozen=True)
class ExportOptions:
    """What an export is asked for.

    Attributes:
        seed: Whose policy; None for the one that did best on what was held out.
        licence: Terms for the contract.
        policy: Name of one of the policies of a training; None for the one that it recommends.
        rule: Name of a published rule in place of what was trained.
        comparison: A comparison whose winner is exported.
        replace: Whether a bundle that is already there may be replaced.
    """

    seed: int | None = None
    licence: str | None = None
    policy: str | None = None
    rule: str | None = None
    comparison: Path | None = None
    replace: bool = False


@dataclass(frozen=True)
class Job:
    """What a problem's part of `run` works with.

    Attributes:
        config: What to do.
        title: Of the report.
        force: Whether to train and export also in a twin that has not passed its certificate.
        archive: The log.
        certificate: The step that certifies "twin".
        make: Makes further steps; products of all steps so far.
        progress: Where to show how far it is.
        resolve: Products -> what the plans of steps read.
    """

    config: RunConfig
    title: str
    force: bool
    archive: Path
    certificate: Step
    make: Callable[[Sequence[Step]], dict[str, Path]]
    progress: Progress
    resolve: Callable[[Inputs], Inputs]


@dataclass(frozen=True)
class Kit:
    """Everything that commands and jobs need of a problem.

    Attributes:
        name: Of the problem, as in manifests.
        decides: What is decided, in words.
        needs: What a log must hold for it, in words.
        lacking: Archive -> why its log does not hold that, in words; empty where it does.
        claims: Whether a configuration asks for the problem.
        ranks_in_job: Whether a job's certificate ranks rules; else the job's comparison does, against the truth too.
        configured: (configuration, command line) -> configuration of the problem; ConfigError where they contradict.
        refuse_other_system: (archive, twin); ConfigError where they are not of one system.
        fit: Configuration -> how a twin is fitted; reads "archive".
        train: Configuration -> how policies are trained; reads "twin", and "certificate" where there is one. None where
            the problem has no such step; `need` then names the steps that it has. So are `compare` and `export`.
        compare: (configuration, title, the user's policies) -> how policies are compared; reads "archive", "twin" and,
            where there is one, "policy".
        export: (bundle folder, policy, options) -> facts.
        certifier: (twin, population in place of its own) -> how it is certified.
        fitted, trained, compared: Facts of a twin, a policy, or a comparison -> what a person is told.
        twin: Type of a twin in Python, and judge: (policies, twin, archive, plan of days, progress, **options) ->
            comparison. Both None where the problem is not compared from Python.
        generate: (twin, number of days, archive to write, progress, *, policy or None, seed, first day, replace) ->
            report. None where the problem has no such part; so are the next two.
        refresh: Configuration -> the parts of a refresh.
        run: Its part of `run`, after the archive.
    """

    name: str
    decides: str
    needs: str
    lacking: Callable[[Archive], str]
    claims: Callable[[RunConfig], bool]
    ranks_in_job: bool
    configured: Callable[[RunConfig, ProblemOptions], RunConfig]
    refuse_other_system: Callable[[Archive, Path], None]
    fit: Callable[[RunConfig], StepPlan]
    train: Callable[[RunConfig], StepPlan] | None
    compare: Callable[[RunConfig, str, Mapping[str, UserPolicy]], StepPlan] | None
    export: Callable[[Path, Path, ExportOptions], Facts] | None
    certifier: Callable[[Path, Path | None], Certifier]
    fitted: Callable[[Facts], list[str]]
    trained: Callable[[Facts], list[str]]
    compared: Callable[[Comparison], list[str]]
    twin: type | None = None
    judge: Callable[..., Comparison] | None = None
    generate: Callable[..., Any] | None = None
    refresh: Callable[[RunConfig], RefreshParts] | None = None
    run: Callable[[Job], dict[str, Path]] | None = None

    def need(self, part: Part | None, step: str) -> Part:
        """A part that a kit may lack; ConfigError where it does, for the step that needs it."""
        if part is None:
            raise ConfigError(
                f"the problem '{self.name}' does not take part in {step}", where=f"kit of {self.name}",
                allowed=", ".join(self.steps),
                advice="what its kit would have to say for that stands with `Kit` in evaluation/problems/kit.py",
            )  # fmt: skip
        return part

    @property
    def steps(self) -> list[str]:
        """The commands that the problem takes part in."""
        own = (name for name in OWN_STEPS if getattr(self, name) is not None)
        return [f"schedtwin {name}" for name in ("fit", "certify", *own)]
