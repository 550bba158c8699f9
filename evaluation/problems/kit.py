"""The interface of a problem: one record for each, which commands and jobs use.

A *kit* holds everything that `fit, certify, train, compare, generate, export, refresh` and `run` need of a problem.
Each step is described once, as a `StepPlan`: the single command makes it into a product folder, a job makes it a step,
and both depend on the same settings and the same version of the code. Commands do not refer to problems by name.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evaluation.certify.certificate import Certificate
from evaluation.certify.config import CertifyConfig
from evaluation.certify.persistence import Certification
from evaluation.comparison.comparison import Comparison
from evaluation.jobs.job import Step
from evaluation.jobs.unfinished import Unfinished
from evaluation.judges.user_judges import UserJudge
from evaluation.problems.configuration import RunConfig
from evaluation.problems.options import ExportOptions, ProblemOptions
from evaluation.problems.refresh_parts import RefreshParts
from logs_schema import Archive
from logs_schema.errors import ConfigError, SchedtwinError
from logs_schema.progress import Progress
from logs_schema.records import to_plain

Inputs = Mapping[str, Path]
"""Name -> path of a step's input: "archive", "twin", "policy", "certificate"."""
Facts = Mapping[str, Any]
"""What goes into a product's manifest."""
LATER_DAYS = "later_days"
"""Key of a twin's facts: the days of its archive after training, to hold it against; where it is not there, unknown."""
Part = TypeVar("Part")
OWN_STEPS = ("train", "compare", "export", "generate", "refresh", "run")
"""Commands that a problem takes part in where its kit has the field of that name."""


@dataclass(frozen=True)
class StepPlan:
    """One step, described once for the single command, for `run` and for `refresh`.

    Attributes:
        kind: Kind of its product.
        build: (folder, inputs, progress) -> facts; writes the product's files into the empty folder.
        settings: Everything it depends on besides its inputs and its seed, JSON or dataclasses.
        seed: Its random seed, or None.
        code_version: Raised when changes of the code change the product.
    """

    kind: str
    build: Callable[[Path, Inputs, Progress], Facts]
    settings: Any
    seed: int | None = None
    code_version: int = 1

    def step(self, name: str, inputs: Sequence[str], resolve: Callable[[Inputs], Inputs] = dict) -> Step:
        """The plan as a step of a job.

        Args:
            name: Name of the step and of its product's folder.
            inputs: Names of earlier steps.
            resolve: Products of those steps -> inputs of `build` (an archive is in a folder inside its product).
        """

        def build(out: Path, products: Inputs, progress: Progress) -> Facts:
            return self.build(out, resolve(products), progress)

        return Step(
            name,
            self.kind,
            build,
            inputs=tuple(inputs),
            config=to_plain(self.settings),
            seed=self.seed,
            code_version=self.code_version,
        )


def takes_no_pool(config: RunConfig, options: ProblemOptions) -> RunConfig:
    """The configuration as it is; ConfigError where processors or a pool are named."""
    if options.processors is not None or options.pool is not None:
        raise ConfigError(
            "only a queue has a pool and processors",
            where="--pool" if options.processors is None else "--processors",
            allowed="--pool and --processors together with --problem ordering",
            advice="leave them out",
        )
    return config


def days_shifted(config: RunConfig, shifts: str) -> RunConfig:
    """The configuration with other shifts, as `schedtwin compare --shifts` names them."""
    return replace(config, shifts=replace(config.shifts, shifts=shifts))


class Certifier(NamedTuple):
    """Functions that certify a twin of the problem.

    Attributes:
        certify: (archive, held-out days or None, settings, progress, finished parts) -> certificate.
        refused: (error, archive, settings) -> certificate with the reason why nothing was measured.
    """

    certify: Callable[[Archive, Sequence[dt.date] | None, CertifyConfig, Progress, Unfinished], Certificate]
    refused: Callable[[SchedtwinError, Archive, CertifyConfig], Certificate]


Export = Callable[[Path, Path, ExportOptions], Facts]
"""(bundle folder, policy, options) -> facts."""


@dataclass(frozen=True)
class Job:
    """The inputs of a problem's part of `run`.

    Attributes:
        config: Configuration of the job.
        title: Title of the report.
        force: Whether to train and export also in a twin that has not passed its certificate.
        archive: The log.
        certificate: The step that certifies "twin".
        make: Runs further steps; returns the products of all steps so far.
        progress: Progress display.
        resolve: Products -> inputs of the step plans.
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
        name: Name of the problem, as in manifests.
        decides: Description of the decisions.
        needs: Description of the data that a log must hold.
        lacking: Archive -> why its log lacks that data, as a sentence; empty where it has it.
        refuse_other_system: (archive, twin); ConfigError where they are of different systems.
        fit: Configuration -> plan of the fit; reads "archive".
        train: Configuration -> plan of the training; reads "twin", and "certificate" where there is one. None where the
            problem has no such step; `need` then names the steps that it has. The same holds for `compare`, `export`.
        compare: (configuration, title, the user's policies by name) -> plan of the comparison; reads "archive", "twin"
            and, where there is one, "policy".
        export: (bundle folder, policy, options) -> facts.
        certifier: (twin, population in place of its own) -> certifier.
        refuse_untrainable: Raises where nothing can be trained in a twin, certified or not.
        fitted, trained, compared: Facts of a twin, a policy, or a comparison -> lines for the terminal; of a comparison
            they are shown after its tables.
        claims: Whether a configuration selects the problem; none does by default.
        configured: (configuration, command line) -> configuration of the problem; ConfigError where they contradict, by
            default where a pool is named.
        ranks_in_job: Whether a job's certificate ranks rules; else the job's comparison does, against the truth too.
        twin: Type of a twin in Python; None where the problem is not compared from Python.
        judge: (policies, twin, archive, plan of days, progress, **options) -> comparison; None likewise.
        takes_judges: Whether `compare` and `judge` take a further argument `judges`: name -> judge of the user's.
        generate: (twin, number of days, archive to write, progress, *, policy or None, seed, first day, replace) ->
            report, a dataclass. None where the problem has no such part. The same holds for the next two.
        refresh: Configuration -> the parts of a refresh.
        run: The problem's part of `run`, after the archive, where it is not the usual one: fit, certify, train,
            compare, export (`usual_job.py`).
        tasks: Commands with tasks, for which `--workers` and `--on` have an effect.
        shifted: (configuration, shifts) -> configuration with these shifts of the days or weeks compared.
        uncertified: Certification -> remark on a bundle that a job exported in a twin that did not pass.
        refuse_untestable: (configuration, archive): raises where the usual job would learn what cannot be judged then.
        refuse_config: Raises where the tables of a job's configuration contradict each other, before its log is read.
        refuses_lacking: Whether a log that lacks something is refused also where the problem is named.
    """

    name: str
    decides: str
    needs: str
    lacking: Callable[[Archive], str]
    refuse_other_system: Callable[[Archive, Path], None]
    fit: Callable[[RunConfig], StepPlan]
    train: Callable[[RunConfig], StepPlan] | None
    compare: Callable[..., StepPlan] | None
    export: Export | None
    certifier: Callable[[Path, Path | None], Certifier]
    fitted: Callable[[Facts], list[str]]
    trained: Callable[[Facts], list[str]]
    compared: Callable[[Comparison], list[str]] = lambda _comparison: []
    refuse_untrainable: Callable[[Path], None] = lambda _twin: None
    claims: Callable[[RunConfig], bool] = lambda _config: False
    configured: Callable[[RunConfig, ProblemOptions], RunConfig] = takes_no_pool
    ranks_in_job: bool = False
    twin: type | None = None
    judge: Callable[..., Comparison] | None = None
    takes_judges: bool = False
    generate: Callable[..., Any] | None = None
    refresh: Callable[[RunConfig], RefreshParts] | None = None
    run: Callable[[Job], dict[str, Path]] | None = None
    tasks: tuple[str, ...] = ()
    shifted: Callable[[RunConfig, str], RunConfig] = days_shifted
    uncertified: Callable[[Certification], str] = lambda found: found.words
    refuse_untestable: Callable[[RunConfig, Archive], None] = lambda _config, _archive: None
    refuse_config: Callable[[RunConfig], None] = lambda _config: None
    refuses_lacking: bool = False

    def need(self, part: Part | None, step: str) -> Part:
        """A part that a kit may lack; ConfigError where it does, for the step that needs it."""
        if part is None:
            raise ConfigError(
                f"the problem '{self.name}' does not take part in {step}",
                where=f"kit of {self.name}",
                allowed=", ".join(self.steps),
                advice="these commands take its logs and products; see `Kit` in evaluation/problems/kit.py for the "
                "field that its kit would need",
            )
        return part

    def with_judges(self, judges: Mapping[str, UserJudge]) -> dict[str, Any]:
        """The argument `judges` of `compare` and `judge`, empty without judges; ConfigError where they take none."""
        if judges and not self.takes_judges:
            raise ConfigError(
                f"comparisons of the problem '{self.name}' take no judges of one's own: {', '.join(judges)}",
                where="judges, --judge",
                allowed="problems whose kit has `takes_judges`",
                advice="leave them out, or let `compare` and `judge` of the kit take judges",
            )
        return {"judges": judges} if judges else {}

    @property
    def steps(self) -> list[str]:
        """The commands that the problem takes part in."""
        is_usual = None not in (self.train, self.compare, self.export)
        own = (name for name in OWN_STEPS if getattr(self, name) is not None or (name == "run" and is_usual))
        return [f"schedtwin {name}" for name in ("fit", "certify", *own)]
