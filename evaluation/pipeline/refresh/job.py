"""`schedtwin refresh`: append, refit, certify, retrain, compare, and export a better policy, as one resumable job.

    WORK/archive                the imported log, the same product as that of `schedtwin run`
    WORK/refresh/history        the imported log and all decisions appended to it since
    WORK/refresh/twin, certificate, policy, candidate      the new policy; candidate is its bundle
    WORK/refresh/running, judged                           the policy it was compared with, and the comparison
    WORK/refresh/decision       decision.json, decision.txt
    WORK/refresh/bundle         the policy to run; replaced only by an export

Every step is a product that is reused while its inputs are unchanged: a job killed at any time is completed by running
it again, and a completed one does nothing. The server keeps writing meanwhile: its new decisions are left to the next
refresh until this one has decided, or is a day old. A copy of the policy compared with is kept, also after an export
(for a rollback), so a second run finds the same comparison. Where the log adds nothing to the history, nothing is
fitted, and the running policy is kept.

Placements and orders of a queue are refreshed by the same steps; their differences are in their `RefreshParts`. The
server decides placements only: for a queue, its own log in this project's format is appended, the table `requests`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluation.certify.persistence import KIND as CERTIFICATE
from evaluation.certify.persistence import certification_in
from evaluation.jobs.job import Step, alone_in, run_steps
from evaluation.judges.bundle_policies import OtherSystemError
from evaluation.pipeline.refresh import appending
from evaluation.pipeline.refresh.config import RefreshConfig
from evaluation.pipeline.refresh.deciding import NO_NEWS, NOTHING_RUNS, ExportDecision, Result
from evaluation.pipeline.refresh.standing import DATA, DECISION, forced_export, is_news, load_decision
from evaluation.pipeline.refresh.steps import (
    certificate_step,
    decision_step,
    exported_step,
    history_step,
    idle_step,
    judged_step,
    running_step,
    twin_step,
)
from evaluation.pipeline.run import BUNDLE, archive_step
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import Kit, ProblemOptions
from evaluation.problems.kits import choose_kit
from evaluation.problems.refresh_parts import HistorySplit, Notice, RefreshParts
from evaluation.problems.usual_job import bundle_step
from logs_schema import Archive
from logs_schema.errors import ConfigError, ProductError
from logs_schema.product import MANIFEST, read_manifest
from logs_schema.progress import Progress
from offline_rl.bundle import origin_of, read_bundle

Products = Mapping[str, Path]
FOLDER = "refresh"
NOTHING = ProblemOptions()


class _Steps:
    """The steps of one refresh in its folder, run as they are added: what is made already is reused."""

    def __init__(self, place: Path, progress: Progress) -> None:
        self.place, self.progress = place, progress
        self.steps: list[Step] = []
        self.products: dict[str, Path] = {}

    def run(self, *steps: Step) -> dict[str, Path]:
        """Adds steps, and makes what is missing; the products of all."""
        self.steps += steps
        self.products = run_steps(self.steps, self.place, self.progress)
        return self.products

    def decided_by(self, step: Step) -> tuple[ExportDecision, dict[str, Path]]:
        """The decision that a last step makes, and all products."""
        return load_decision(self.run(step)[DECISION]), self.products

    def standing(
        self, running: Path | None, settings: RefreshConfig, certificate: Path | None
    ) -> tuple[ExportDecision, dict[str, Path]] | None:
        """A forced export that stands (see `forced_export`), and all products; None where there is none."""
        decision = forced_export(self.place, running, settings, certificate)
        return None if decision is None else (decision, as_exported(self.place, self.products, self.progress))


def refresh(
    config: RunConfig,
    here: Path,
    log: Path,
    work: Path,
    bundle: Path | None,
    settings: RefreshConfig,
    progress: Progress,
    *,
    options: ProblemOptions = NOTHING,
) -> tuple[ExportDecision, dict[str, Path]]:
    """Runs the job, or what is missing of it.

    Args:
        config: As for `schedtwin run`; the training window ends before the newest days, regardless of [days].
        here: Folder that relative paths in the configuration start from.
        log: Decision log: folder of `schedtwin serve --log`, or tables in this project's own format.
        work: Folder of the products.
        bundle: The running policy; by default the one of the last export, else of `schedtwin run` in this folder.
        settings: Held-out days and the condition of an export.
        progress: Progress display.
        options: The problem; by default ordering where there is a table [order] or the log has one pool only.

    Returns:
        The decision, and the products by name; `bundle` only where there was an export.

    Raises:
        ConfigError: The configuration or the history does not support the request, or another run is at work in the
            folder.
        FormatError: The log cannot be read.
        ProductError: A bundle or product is damaged, or of the other problem.
    """
    if config.log is None:
        raise ConfigError("the configuration names no log", allowed="a table [log]", advice="see the README")
    with alone_in(work):
        running = find_running(bundle, work)
        if running is not None:
            read_bundle(running)
        imported = run_steps([archive_step(config.log, here, config.engine)], work, progress)
        archive = imported["archive"] / appending.ARCHIVE
        kit, config, note = choose_kit(config, archive, options)
        if note:
            progress.note(note)
        parts = kit.need(kit.refresh, "schedtwin refresh")(config)
        if running is not None:
            refuse_other_decisions(running, kit.name)
        job = _Steps(work / FOLDER, progress)
        job.run(history_step(archive, job.place, log, progress, parts.table))
        if not (settings.force or is_news(job.products["history"])):
            reason = NO_NEWS if running is not None else NOTHING_RUNS
            return job.standing(running, settings, None) or job.decided_by(idle_step(settings, reason))
        history = Archive(job.products["history"] / appending.ARCHIVE)
        held_out = parts.hold_out(history, settings.judge_days or parts.num_days)
        causes: tuple[str, ...] = ()
        if settings.when_needed and running is not None:
            needed, causes = notice(kit.name, parts, history, running, held_out, settings.reward_below)
            if not needed:
                reason = f"training is not due, so nothing was fitted: {'; '.join(causes)}"
                return job.decided_by(idle_step(settings, reason))
        job.run(twin_step(kit, parts.config, held_out, progress), certificate_step(config, held_out))
        if certification_in(job.products[CERTIFICATE]).passed or settings.force:
            return _retrained(job, kit, parts, config, held_out, running, settings, causes)
        standing = job.standing(running, settings, job.products[CERTIFICATE])
        return standing or job.decided_by(decision_step(settings, held_out, [], judged=False, trained=False))


def _retrained(
    job: _Steps,
    kit: Kit,
    parts: RefreshParts,
    config: RunConfig,
    held_out: HistorySplit,
    running: Path | None,
    settings: RefreshConfig,
    causes: Sequence[str],
) -> tuple[ExportDecision, dict[str, Path]]:
    """Trains in the twin, compares with the running policy, if there is one, and exports what is better."""
    job.run(
        kit.need(kit.train, "schedtwin train")(parts.config).step("policy", ("twin", CERTIFICATE)),
        bundle_step(kit.need(kit.export, "schedtwin export"), "candidate"),
    )
    running, notes = choose_running(running, job.place, job.products, parts)
    notes = [*(f"training is due: {cause}" for cause in causes), *notes]
    if running is not None:
        job.steps += [running_step(running), judged_step(parts, config, held_out)]
    is_judged = running is not None
    decision, _ = job.decided_by(decision_step(settings, held_out, notes, judged=is_judged, trained=True))
    if decision.result is Result.EXPORTED:
        job.run(exported_step())
    return decision, job.products


def as_exported(place: Path, products: Products, progress: Progress) -> dict[str, Path]:
    """The products of a forced export that stands, the bundle among them, made again where it is damaged."""
    progress.note("the export that was forced stands: nothing that it was based on has changed")
    names = ("twin", CERTIFICATE, "policy", "candidate", "running", "judged", DECISION)
    made = {name: (place / name).resolve() for name in names if (place / name / MANIFEST).is_file()}
    return run_steps([exported_step()], place, progress, done={**products, **made})


def notice(
    problem: str,
    parts: RefreshParts,
    history: Archive,
    running: Path,
    held_out: HistorySplit,
    below: float | None,
) -> Notice:
    """Whether training is due; ConfigError where the problem has no notifier."""
    if parts.notifier is None:
        raise ConfigError(
            f"the problem '{problem}' has no test of whether training is due",
            where="--when-needed",
            allowed="a refresh without it, or of the problem 'autoscaling'",
            advice="without it every refresh trains, and exports only what is better",
        )
    return parts.notifier(history.path, running, held_out.days, below)


def find_running(named: Path | None, work: Path) -> Path | None:
    """The running policy's bundle: the named one, that of the last refresh, or of `schedtwin run`; None without one."""
    beside_report = work / "comparison"  # where `schedtwin run` writes the bundle of an order
    folders = (work / FOLDER / "bundle", work / "bundle", beside_report)
    return named or next((one / BUNDLE for one in folders if (one / BUNDLE / MANIFEST).is_file()), None)


def refuse_other_decisions(bundle: Path, problem: str) -> None:
    """Raises unless a bundle is of the given problem.

    Raises:
        ProductError: It is of another problem, or damaged.
    """
    found = origin_of(bundle).problem
    if found != problem:
        raise ProductError(
            f"the running policy is of the problem '{found}', the refresh of '{problem}'",
            where=str(bundle),
            allowed=f"a bundle of the problem '{problem}'",
            advice="name it with --bundle, or the problem with --problem",
        )


def choose_running(
    running: Path | None, place: Path, products: Products, parts: RefreshParts
) -> tuple[Path | None, list[str]]:
    """The policy to compare the candidate with, and notes.

    Where the candidate is running already because it was exported, this is the policy it was compared with then.
    """
    if running is None:
        return None, []
    candidate = read_bundle(products["candidate"] / BUNDLE).content_hash
    if read_bundle(running).content_hash == candidate and (place / DECISION / DATA).is_file():
        before = load_decision(place / DECISION)
        if before.new == candidate and before.result is Result.EXPORTED:
            kept = place / "running" / BUNDLE
            notes = read_manifest(place / DECISION).config["notes"]
            return (kept if before.running is not None else None), notes
    try:
        parts.refuse_other(running, products["twin"])
    except OtherSystemError as error:
        why = f"{error.what} ({error.where.split(': ', 1)[-1]})"
        return None, [f"the running policy is not compared with: {why}; the certificate alone decides"]
    return running, []
