"""The usual part of `schedtwin run`, of every kit that does not bring its own: fit, certify, train, compare, export."""

from dataclasses import replace
from pathlib import Path

from evaluation.certify.persistence import KIND as CERTIFICATE
from evaluation.certify.persistence import certification_in
from evaluation.jobs.job import Step
from evaluation.problems.kit import Export, ExportOptions, Facts, Inputs, Job, Kit, ProblemOptions
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import Progress
from logs_schema.records import to_plain

NAME, BUNDLE = "schedtwin run", "bundle"


def usual_job(kit: Kit, job: Job) -> dict[str, Path]:
    """All steps of a kit; without a passed certificate no training, unless forced.

    Raises:
        ConfigError: The log lacks what the problem needs, or the kit has no training, comparison or export.
    """
    train, compare = kit.need(kit.train, NAME), kit.need(kit.compare, NAME)
    export = kit.need(kit.export, NAME)
    if reason := kit.lacking(Archive(job.archive)):
        raise ConfigError(
            f"the log does not support the problem '{kit.name}': {reason}",
            where=str(job.archive),
            allowed=f"{kit.name} needs {kit.needs}",
            advice="take another problem's table in the configuration",
        )
    config = kit.configured(job.config, ProblemOptions())
    kit.refuse_untestable(config, Archive(job.archive))
    products = job.make([kit.fit(config).step("twin", ("archive",), job.resolve), job.certificate])
    held_back = "" if job.force else certification_in(products[CERTIFICATE]).held_back
    if held_back:
        plan = compare(config, job.title, {})
        alone = replace(plan, settings={**to_plain(plan.settings), "held_back": held_back})
        return job.make([alone.step("comparison", ("archive", "twin"), job.resolve)])

    return job.make(
        [
            train(config).step("policy", ("twin", CERTIFICATE), job.resolve),
            compare(config, job.title, {}).step("comparison", ("archive", "twin", "policy"), job.resolve),
            bundle_step(export),
        ]
    )


def bundle_step(export: Export, name: str = BUNDLE) -> Step:
    """The step that exports what the training recommends; the bundle is a folder inside its product."""

    def build(out: Path, inputs: Inputs, _: Progress) -> Facts:
        return export(out / BUNDLE, inputs["policy"], ExportOptions())

    return Step(name, "job-bundle", build, inputs=("policy",))
