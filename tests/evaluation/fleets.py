"""Fleets for tests: real files and manifests, and a refresh whose steps write a few bytes and do as the log says.

The decision log of a cluster holds a file `orders.csv`: a number, from which everything that is made follows, and what
the refresh comes to. Functions of a module, for workers import them.
"""

import datetime as dt
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from evaluation.certify.certificate import Certificate
from evaluation.certify.lines import Verdict
from evaluation.certify.persistence import DATA as CERTIFICATE_DATA
from evaluation.jobs.job import Step, alone_in, run_steps
from evaluation.pipeline.fleet.config import Fleet, FleetCluster, load_fleet
from evaluation.pipeline.fleet.exports import keep_export
from evaluation.pipeline.fleet.outcomes import RefreshOutcome
from evaluation.pipeline.fleet.refreshing import ClusterTask
from evaluation.pipeline.refresh.deciding import ExportDecision, Result
from evaluation.pipeline.refresh.job import FOLDER
from logs_schema.errors import FormatError
from logs_schema.product import read_manifest, writing
from logs_schema.progress import Progress, SilentProgress
from tests.serving.bundles import make_bundle

EXPORTED, KEPT, FAILED, CANNOT_TELL = (one.value for one in Result)


ERROR, BUG, DIES, HANGS = "error", "bug", "dies", "hangs"


VERDICTS = {FAILED: Verdict.FAIL, CANNOT_TELL: Verdict.CANNOT_TELL}


HISTORY = {
    "files": 1, "new_files": 1, "rows_read": 1, "rows_known": 0, "requests_added": 1, "rows_quarantined": 0,
    "requests": 1, "first_day": "2024-01-01", "last_day": "2024-01-03",
}  # fmt: skip


JOB = '[log]\nformat = "native"\npaths = ["log"]\n'


def made_fleet(folder: Path, clusters: Mapping[str, str], more: str = "", each: str = "") -> Fleet:
    """A fleet's file with clusters, their jobs and logs; `clusters` says what the first refresh of each comes to."""
    (folder / "log").mkdir(exist_ok=True)
    (folder / "log" / "requests.csv").write_text("request_id\n")
    (folder / "job.toml").write_text(JOB)
    tables = [more]
    for number, (name, comes_to) in enumerate(clusters.items()):
        order(folder, name, number, comes_to)
        lines = [
            f'name = "{name}"',
            'config = "job.toml"',
            f'log = "decisions/{name}"',
            f'work = "work/{name}"',
        ]
        tables.append("\n".join(["[[clusters]]", *lines, each]))
    (folder / "fleet.toml").write_text("\n".join(tables))
    return load_fleet(folder / "fleet.toml")


def order(folder: Path, name: str, number: int, comes_to: str) -> None:
    """Says what the next refresh of a cluster makes, and what it comes to."""
    decisions = folder / "decisions" / name
    decisions.mkdir(parents=True, exist_ok=True)
    (decisions / "orders.csv").write_text(f"{number},{comes_to}")


def refreshed(cluster: FleetCluster) -> ExportDecision:
    """One such refresh here."""
    return obeys(cluster, SilentProgress())


def obeys(cluster: FleetCluster, progress: Progress) -> ExportDecision:
    """A refresh that makes the products of a real one, with its names, inputs and manifests, and does as it is told."""
    word, comes_to = (cluster.log / "orders.csv").read_text().split(",")
    number = int(word)
    progress.note(f"ordered: {comes_to}")
    if comes_to == ERROR:
        raise FormatError("the log is of no use", where="row 7", allowed="rows of use", advice="write others")
    if comes_to == BUG:
        raise ZeroDivisionError("by nothing")
    if comes_to == DIES:
        os.kill(os.getpid(), signal.SIGKILL)
    if comes_to == HANGS:
        time.sleep(600.0)
    with alone_in(cluster.work):
        run_steps(steps_of(number, comes_to), cluster.work / FOLDER, progress)
    keep_export(cluster.work)
    return decision_of(comes_to)


def decision_of(comes_to: str) -> ExportDecision:
    """The decision with this result."""
    return ExportDecision(
        Result(comes_to),
        f"it was {comes_to}",
        HISTORY,
        (),
        (),
        None,
        "",
        None,
        None,
        "better",
        None,
        None,
        (),
        (),
    )


def steps_of(number: int, comes_to: str) -> list[Step]:
    """The steps of a refresh up to what it comes to."""

    def writes(text: str, extra: Mapping[str, Any] | None = None) -> Any:
        def build(out: Path, _: Any, __: Any) -> Mapping[str, Any] | None:
            (out / "text").write_text(text)
            return extra

        return build

    def archive(out: Path, _: Any, __: Any) -> Mapping[str, Any]:
        with writing(out / "archive", "archive") as folder:
            (folder / "rows").write_text(f"rows {number}")
        return {"is_news": True}

    def certificate(out: Path, inputs: Mapping[str, Path], __: Any) -> Mapping[str, Any]:
        verdict = VERDICTS.get(comes_to, Verdict.PASS)
        twin = read_manifest(inputs["twin"]).content_hash
        days = ("2024-01-01", f"2024-01-{number % 20 + 2:02}")
        found = Certificate(verdict, (), (), days, ("2024-02-01",), (), 9, (), "", {}, twin, twin)
        (out / CERTIFICATE_DATA).write_text(json.dumps(found.to_json()))
        return {"verdict": verdict.value}

    def candidate(out: Path, _: Any, __: Any) -> None:
        make_bundle(out / "bundle", seed=number)

    def bundle(out: Path, inputs: Mapping[str, Path], __: Any) -> None:
        shutil.copytree(inputs["candidate"] / "bundle", out / "bundle")

    trained = comes_to in (EXPORTED, KEPT)
    steps = [
        Step("history", "history", archive, config={"number": number}),
        Step("twin", "twin", writes(f"twin {number}"), inputs=("history",), config={"number": number}),
        Step(
            "certificate",
            "certificate",
            certificate,
            inputs=("history", "twin"),
            config={"comes_to": comes_to},
        ),
    ]
    if trained:
        steps += [
            Step("policy", "policy", writes(f"policy {number}"), inputs=("twin", "certificate")),
            Step("candidate", "job-bundle", candidate, inputs=("policy",), config={"number": number}),
        ]
    inputs = ("history", "certificate", *(("candidate",) if trained else ()))
    steps.append(Step("decision", "refresh", writes(comes_to, {"result": comes_to}), inputs=inputs))
    return (
        [*steps, Step("bundle", "job-bundle", bundle, inputs=("candidate",))]
        if comes_to == EXPORTED
        else steps
    )


NOON = dt.datetime(2026, 3, 4, 12, tzinfo=dt.UTC)


EACH = {
    "edge": (EXPORTED, 0),
    "kept": (KEPT, 10),
    "failed": (FAILED, 11),
    "unsure": (CANNOT_TELL, 12),
    "bad": (ERROR, 2),
    "bug": (BUG, 1),
}


def tasks_of(fleet: Fleet) -> list[ClusterTask]:
    return [ClusterTask(one, 7, obeys) for one in fleet.clusters]


def outcome_at(begun: dt.datetime, **changes: Any) -> RefreshOutcome:
    ended = begun + dt.timedelta(minutes=10)
    made = RefreshOutcome(begun.isoformat(), ended.isoformat(), 10, KEPT, "because", None)
    return replace(made, **changes)


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """(metric, labels) -> value, by the parser of Prometheus' own Python client."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
