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

import datetime as dt
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.certify.persistence import KIND as CERTIFICATE
from evaluation.certify.persistence import certification_in, load_certificate
from evaluation.comparison.products import load_comparison
from evaluation.jobs.job import Step, alone_in, run_steps
from evaluation.judges.bundle_policies import OtherSystemError
from evaluation.pipeline.refresh import appending
from evaluation.pipeline.refresh.config import RefreshConfig
from evaluation.pipeline.refresh.deciding import (
    NO_NEWS,
    NOTHING_RUNS,
    ExportDecision,
    Result,
    better_rules,
    decide,
    idle_decision,
    judgements_of,
)
from evaluation.pipeline.refresh.standing import (
    DATA,
    DECISION,
    TEXT,
    forced_export,
    has_ended,
    is_news,
    is_under_way,
    load_decision,
)
from evaluation.pipeline.run import BUNDLE, archive_step
from evaluation.problems.certificates import certificate_plan
from evaluation.problems.configuration import LogConfig, RunConfig
from evaluation.problems.kit import Kit, ProblemOptions
from evaluation.problems.kits import choose_kit
from evaluation.problems.refresh_parts import HistorySplit, Notice, RefreshParts
from evaluation.problems.usual_job import bundle_step
from logs_schema import Archive
from logs_schema.errors import ConfigError, ProductError
from logs_schema.hashing import file_hash, json_hash
from logs_schema.product import MANIFEST, read_manifest
from logs_schema.progress import Progress
from logs_schema.records import to_plain
from logs_schema.tables import REQUESTS
from offline_rl.bundle import origin_of, read_bundle

Products = Mapping[str, Path]
FOLDER = "refresh"
NOTHING = ProblemOptions()


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
        return _refresh_alone(config, config.log, here, log, work, bundle, settings, progress, options)


def _refresh_alone(
    config: RunConfig,
    base_log: LogConfig,
    here: Path,
    log: Path,
    work: Path,
    bundle: Path | None,
    settings: RefreshConfig,
    progress: Progress,
    options: ProblemOptions,
) -> tuple[ExportDecision, dict[str, Path]]:
    running = find_running(bundle, work)
    if running is not None:
        read_bundle(running)
    base = (
        run_steps([archive_step(base_log, here, config.engine)], work, progress)["archive"]
        / appending.ARCHIVE
    )
    kit, config, note = choose_kit(config, base, options)
    if note:
        progress.note(note)
    parts = kit.need(kit.refresh, "schedtwin refresh")(config)
    if running is not None:
        refuse_other_decisions(running, kit.name)
    place = work / FOLDER
    steps = [history_step(base, place, log, progress, parts.table)]
    products = run_steps(steps, place, progress)
    if not (settings.force or is_news(products["history"])):
        if (standing := forced_export(place, running, settings, None)) is not None:
            return standing, _as_exported(place, products, progress)
        reason = NO_NEWS if running is not None else NOTHING_RUNS
        products = run_steps([*steps, _idle_step(settings, reason)], place, progress)
        return load_decision(products[DECISION]), products
    history = Archive(products["history"] / appending.ARCHIVE)
    held_out = parts.hold_out(history, settings.judge_days or parts.num_days)
    causes: tuple[str, ...] = ()
    if settings.when_needed and running is not None:
        needed, causes = notice(kit.name, parts, history, running, held_out, settings.reward_below)
        if not needed:
            reason = f"training is not due, so nothing was fitted: {'; '.join(causes)}"
            products = run_steps([*steps, _idle_step(settings, reason)], place, progress)
            return load_decision(products[DECISION]), products
    steps += [_twin_step(kit, parts.config, held_out, progress), _certificate_step(config, held_out)]
    products = run_steps(steps, place, progress)
    notes: list[str] = []
    trained, judged = certification_in(products[CERTIFICATE]).passed or settings.force, False
    if not trained:
        standing = forced_export(place, running, settings, products[CERTIFICATE])
        if standing is not None:
            return standing, _as_exported(place, products, progress)
    else:
        train = kit.need(kit.train, "schedtwin train")
        steps += [
            train(parts.config).step("policy", ("twin", CERTIFICATE)),
            bundle_step(kit.need(kit.export, "schedtwin export"), "candidate"),
        ]
        products = run_steps(steps, place, progress)
        running, notes = choose_running(running, place, products, parts)
        notes = [*(f"training is due: {cause}" for cause in causes), *notes]
        judged = running is not None
        if running is not None:
            steps += [_running_step(running), _judged_step(parts, config, held_out)]
    steps.append(_decision_step(settings, held_out, notes, judged=judged, trained=trained))
    products = run_steps(steps, place, progress)
    decision = load_decision(products[DECISION])
    if decision.result is Result.EXPORTED:
        products = run_steps([*steps, _bundle_step()], place, progress)
    return decision, products


def _as_exported(place: Path, products: Products, progress: Progress) -> dict[str, Path]:
    """The products of a forced export that stands, the bundle among them, made again where it is damaged."""
    progress.note("the export that was forced stands: nothing that it was based on has changed")
    names = ("twin", CERTIFICATE, "policy", "candidate", "running", "judged", DECISION)
    made = {name: (place / name).resolve() for name in names if (place / name / MANIFEST).is_file()}
    return run_steps([_bundle_step()], place, progress, done={**products, **made})


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
            f"the problem '{problem}' has no test of whether training is due", where="--when-needed",
            allowed="a refresh without it, or of the problem 'autoscaling'",
            advice="without it every refresh trains, and exports only what is better",
        )  # fmt: skip
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


def history_step(base: Path, place: Path, log: Path, progress: Progress, table: str = REQUESTS.name) -> Step:
    """The step that appends a log of `table` to the history in `place`; an unfinished refresh keeps the one before."""
    previous = place / "history" if (place / "history" / MANIFEST).is_file() else None
    files = appending.log_files(log)
    log_hash = json_hash(sorted(file_hash(path) for path in files))
    turn, is_owed = 0, False
    if previous is not None:
        is_owed = is_news(previous) and not has_ended(place)
        before = read_manifest(previous, appending.KIND)
        turn = before.extra["turn"]
        if before.extra["log"] == log_hash:
            pass
        elif is_under_way(place, dt.datetime.now(dt.UTC)):
            progress.note(
                "the unfinished refresh is completed first; newer decisions are left to the next one"
            )
        else:
            turn += 1

    def build(out: Path, _: Products, progress: Progress) -> Mapping[str, Any]:
        with progress.stage("append", unit="rows") as stage:
            facts = appending.build_history(out, base, previous, files, stage, log, table)
        progress.note(appending.in_words(facts))
        return facts | {"turn": turn, "log": log_hash, "is_news": facts["is_news"] or is_owed}

    settings = {"base": Archive(base).content_hash, "turn": turn}
    return Step("history", appending.KIND, build, config=settings)


def _idle_step(settings: RefreshConfig, reason: str = NO_NEWS) -> Step:
    """The decision where nothing is fitted."""

    def build(out: Path, inputs: Products, _: Progress) -> Mapping[str, Any]:
        facts = read_manifest(inputs["history"], appending.KIND).extra
        return _write(out, idle_decision(facts, settings.accept, reason))

    asked = {"accept": settings.accept} | ({} if reason == NO_NEWS else {"reason": reason})
    return Step(DECISION, "refresh", build, inputs=("history",), config=asked)


def _twin_step(kit: Kit, config: RunConfig, held_out: HistorySplit, progress: Progress) -> Step:
    last = held_out.last_train_day
    if config.days.last_day is not None:
        progress.note(f"[days] last_day is ignored: training ends before the newest days, on {last}")
    config = replace(config, days=replace(config.days, last_day=last))
    return kit.fit(config).step("twin", ("history",), _archive_of)


def _archive_of(products: Products) -> Products:
    """The products, with the history's archive as `archive`."""
    return {**products, "archive": products["history"] / appending.ARCHIVE}


def _certificate_step(config: RunConfig, held_out: HistorySplit) -> Step:
    plan = certificate_plan(
        replace(config.certify, rankings=False), held_out.days, record_refusal=True, engine=config.engine
    )
    return plan.step(CERTIFICATE, ("history", "twin"), _archive_of)


def _running_step(running: Path) -> Step:
    """A copy of the running policy."""

    def build(out: Path, _: Products, __: Progress) -> None:
        shutil.copytree(running, out / BUNDLE)

    source = {"bundle": read_bundle(running).content_hash}
    return Step("running", "job-bundle", build, config=source)


def _judged_step(parts: RefreshParts, config: RunConfig, held_out: HistorySplit) -> Step:
    def build(out: Path, inputs: Products, progress: Progress) -> None:
        history = inputs["history"] / appending.ARCHIVE
        new, running = (inputs[name] / BUNDLE for name in ("candidate", "running"))
        comparison = parts.judge(history, inputs["twin"], held_out.days, new, running, progress)
        (out / "comparison.json").write_text(
            json.dumps(comparison.to_json(), indent=1, allow_nan=False), encoding="utf-8"
        )

    settings = to_plain({**parts.judge_settings, "days": held_out.days})
    inputs = ("history", "twin", "candidate", "running")
    return Step(
        "judged", "comparison", build, inputs=inputs, config=settings, seed=config.judge.seed,
        code_version=parts.judge_code,
    )  # fmt: skip


def _decision_step(
    settings: RefreshConfig, held_out: HistorySplit, notes: list[str], *, judged: bool, trained: bool
) -> Step:
    def build(out: Path, inputs: Products, progress: Progress) -> Mapping[str, Any]:
        comparison = load_comparison(inputs["judged"]) if judged else None
        judgements = judgements_of(comparison) if comparison is not None else None
        certificate = load_certificate(inputs[CERTIFICATE])
        rules = better_rules(comparison) if comparison is not None else ()
        result, reason = decide(
            certificate.training.value, judgements, settings.accept, force=settings.force, rules=rules
        )
        hashes = {
            name: read_manifest(inputs[name] / BUNDLE).content_hash if name in inputs else None
            for name in ("candidate", "running")
        }
        all_notes = [*notes, *certificate.notes]
        if comparison is not None:
            all_notes += [*comparison.judge_notes, *comparison.notes]
        decision = ExportDecision(
            result, reason, read_manifest(inputs["history"]).extra, certificate.train_days,
            tuple(day.isoformat() for day in held_out.days), read_manifest(inputs[CERTIFICATE]).content_hash,
            certificate.in_words(), hashes["candidate"], hashes["running"], settings.accept,
            comparison.main_metric if comparison is not None else None,
            comparison.unit_kind if comparison is not None else None, judgements or (),
            tuple(dict.fromkeys(all_notes)),
        )  # fmt: skip
        return _write(out, decision)

    more = (("candidate",) if trained else ()) + (("running", "judged") if judged else ())
    parts = {"accept": settings.accept, "notes": notes} | ({"force": True} if settings.force else {})
    return Step(DECISION, "refresh", build, inputs=("history", CERTIFICATE, *more), config=parts)


def _write(out: Path, decision: ExportDecision) -> Mapping[str, Any]:
    (out / DATA).write_text(json.dumps(decision.to_json(), indent=1, allow_nan=False) + "\n")
    (out / TEXT).write_text(decision.in_words() + "\n", encoding="utf-8")
    return {"result": decision.result.value}


def _bundle_step() -> Step:
    def build(out: Path, inputs: Products, _: Progress) -> Mapping[str, Any]:
        shutil.copytree(inputs["candidate"] / BUNDLE, out / BUNDLE)
        return {}

    return Step("bundle", "job-bundle", build, inputs=("candidate",))
