"""The steps of a refresh, one product folder each: see `evaluation.pipeline.refresh.job` for their order."""

import datetime as dt
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.certify.persistence import KIND as CERTIFICATE
from evaluation.certify.persistence import load_certificate
from evaluation.comparison.products import load_comparison
from evaluation.jobs.job import Step
from evaluation.jobs.unfinished import Unfinished
from evaluation.pipeline.refresh import appending
from evaluation.pipeline.refresh.config import RefreshConfig
from evaluation.pipeline.refresh.deciding import (
    NO_NEWS,
    ExportDecision,
    better_rules,
    decide,
    idle_decision,
    judgements_of,
)
from evaluation.pipeline.refresh.standing import DATA, DECISION, TEXT, has_ended, is_news, is_under_way
from evaluation.pipeline.run import BUNDLE
from evaluation.problems.certificates import certificate_plan
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import Kit
from evaluation.problems.refresh_parts import HistorySplit, RefreshParts
from logs_schema import Archive
from logs_schema.hashing import file_hash, json_hash
from logs_schema.product import MANIFEST, read_manifest
from logs_schema.progress import Progress
from logs_schema.records import to_plain
from logs_schema.tables import REQUESTS
from offline_rl.bundle import read_bundle

Products = Mapping[str, Path]


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


def idle_step(settings: RefreshConfig, reason: str = NO_NEWS) -> Step:
    """The decision where nothing is fitted."""

    def build(out: Path, inputs: Products, _: Progress) -> Mapping[str, Any]:
        facts = read_manifest(inputs["history"], appending.KIND).extra
        return _write(out, idle_decision(facts, settings.accept, reason))

    asked = {"accept": settings.accept} | ({} if reason == NO_NEWS else {"reason": reason})
    return Step(DECISION, "refresh", build, inputs=("history",), config=asked)


def twin_step(kit: Kit, config: RunConfig, held_out: HistorySplit, progress: Progress) -> Step:
    """The twin of the history before the held-out days."""
    last = held_out.last_train_day
    if config.days.last_day is not None:
        progress.note(f"[days] last_day is ignored: training ends before the newest days, on {last}")
    config = replace(config, days=replace(config.days, last_day=last))
    return kit.fit(config).step("twin", ("history",), _archive_of)


def _archive_of(products: Products) -> Products:
    """The products, with the history's archive as `archive`."""
    return {**products, "archive": products["history"] / appending.ARCHIVE}


def certificate_step(config: RunConfig, held_out: HistorySplit) -> Step:
    """Its certificate on the held-out days."""
    plan = certificate_plan(
        replace(config.certify, rankings=False), held_out.days, record_refusal=True, engine=config.engine
    )
    return plan.step(CERTIFICATE, ("history", "twin"), _archive_of)


def running_step(running: Path) -> Step:
    """A copy of the running policy."""

    def build(out: Path, _: Products, __: Progress) -> None:
        shutil.copytree(running, out / BUNDLE)

    source = {"bundle": read_bundle(running).content_hash}
    return Step("running", "job-bundle", build, config=source)


def judged_step(parts: RefreshParts, config: RunConfig, held_out: HistorySplit) -> Step:
    """The comparison of the candidate with the running policy on the held-out days; killed, it goes on."""
    settings = to_plain({**parts.judge_settings, "days": held_out.days})
    inputs = ("history", "twin", "candidate", "running")

    def build(out: Path, products: Products, progress: Progress) -> None:
        made_from = {name: read_manifest(products[name]).content_hash for name in inputs}
        keep = Unfinished.beside(
            out,
            "judged",
            made_from,
            {**settings, "code": parts.judge_code},
            config.judge.seed,
            progress=progress,
        )
        history = products["history"] / appending.ARCHIVE
        new, running = (products[name] / BUNDLE for name in ("candidate", "running"))
        comparison = parts.judge(history, products["twin"], held_out.days, new, running, progress, keep)
        (out / "comparison.json").write_text(
            json.dumps(comparison.to_json(), indent=1, allow_nan=False), encoding="utf-8"
        )
        keep.remove()

    return Step(
        "judged",
        "comparison",
        build,
        inputs=inputs,
        config=settings,
        seed=config.judge.seed,
        code_version=parts.judge_code,
    )


def decision_step(
    settings: RefreshConfig, held_out: HistorySplit, notes: list[str], *, judged: bool, trained: bool
) -> Step:
    """The decision, by the certificate and, where something was `judged`, by the comparison."""

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


def exported_step() -> Step:
    """The candidate as the policy to run."""

    def build(out: Path, inputs: Products, _: Progress) -> Mapping[str, Any]:
        shutil.copytree(inputs["candidate"] / BUNDLE, out / BUNDLE)
        return {}

    return Step("bundle", "job-bundle", build, inputs=("candidate",))
