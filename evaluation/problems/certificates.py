"""Makes a twin's certificate by the kit of its problem."""

import datetime as dt
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evaluation.certify.config import CertifyConfig
from evaluation.certify.page import render
from evaluation.certify.persistence import CERTIFICATE_CODE, DATA, KIND, PAGE
from evaluation.jobs.engine.config import HERE, EngineConfig
from evaluation.jobs.unfinished import Unfinished
from evaluation.problems.kit import Inputs, StepPlan
from evaluation.problems.kits import kit_of
from logs_schema import Archive
from logs_schema.errors import ProductError, SchedtwinError
from logs_schema.hashing import file_hash, json_hash
from logs_schema.product import read_manifest
from logs_schema.progress import Progress


def certificate_plan(
    config: CertifyConfig,
    days: Sequence[dt.date] | None = None,
    *,
    population: Path | None = None,
    record_refusal: bool = False,
    engine: EngineConfig = HERE,
) -> StepPlan:
    """The step that certifies a twin, see `build_certificate`; reads "archive" and "twin"."""

    def build(out: Path, inputs: Inputs, progress: Progress) -> dict[str, Any]:
        facts = build_certificate(
            out, inputs["archive"], inputs["twin"], days, config, progress,
            population=population, record_refusal=record_refusal, engine=engine,
        )  # fmt: skip
        of_training = (
            "" if facts["training"] == facts["verdict"] else f"what training uses: {facts['training']}"
        )
        words = filter(None, (facts["verdict"], of_training, facts["since_training"]))
        progress.note(f"the twin's certificate: {'; '.join(words)}")
        return facts

    chosen = None if days is None else [day.isoformat() for day in days]
    return StepPlan(KIND, build, {"certify": config, "days": chosen}, config.seed, CERTIFICATE_CODE)


def build_certificate(
    out: Path,
    archive_path: Path,
    twin_path: Path,
    days: Sequence[dt.date] | None,
    config: CertifyConfig,
    progress: Progress,
    *,
    population: Path | None = None,
    record_refusal: bool = False,
    engine: EngineConfig = HERE,
) -> dict[str, Any]:
    """Certifies a twin and writes `certificate.json` and `report.html` into `out`.

    Finished parts are saved beside `out` until all are done, so that a killed certificate can be resumed.

    Args:
        out: Folder to write into.
        archive_path: Path of the archive.
        twin_path: Path of the twin.
        days: Held-out days; the first ones after training if None.
        config: Sizes and thresholds.
        progress: Progress display.
        population: Folder of a fitted population; by default the twin's own, where it has one.
        record_refusal: Whether a refusal is recorded as a certificate with the verdict cannot tell, instead of raised.
        engine: Engine that measures the parts.

    Returns:
        Facts for the manifest.

    Raises:
        ConfigError: The archive is another one, or the days cannot be used.
        ProductError: This is no twin.
    """
    kit, archive = kit_of(twin_path), Archive(archive_path)
    kit.refuse_other_system(archive, twin_path)
    certifier = kit.certifier(twin_path, population)
    keep = _unfinished(out, archive, twin_path, days, config, population, engine, progress)
    try:
        certificate = certifier.certify(archive, days, config, progress, keep)
    except ProductError:
        raise
    except SchedtwinError as error:
        if not record_refusal:
            raise
        certificate = certifier.refused(error, archive, config)
    (out / DATA).write_text(json.dumps(certificate.to_json(), indent=1, allow_nan=False) + "\n")
    (out / PAGE).write_text(render(certificate, "Certificate of a twin"), encoding="utf-8")
    keep.remove()
    return {
        "verdict": certificate.verdict.value,
        "training": certificate.training.value,
        "days": list(certificate.days),
        "lines": certificate.counts(),
        "refusal": certificate.refusal,
        "since_training": certificate.since_training,
    }


def _unfinished(
    out: Path,
    archive: Archive,
    twin_path: Path,
    days: Sequence[dt.date] | None,
    config: CertifyConfig,
    population: Path | None,
    engine: EngineConfig,
    progress: Progress,
) -> Unfinished:
    """What of this very certificate is measured already."""
    made_from = {"archive": archive.content_hash, "twin": read_manifest(twin_path, "twin").content_hash}
    if population is not None:
        files = sorted(file for file in population.rglob("*") if file.is_file())
        made_from["population"] = json_hash({file.name: file_hash(file) for file in files})
    settings = {"certify": config, "days": days, "code": CERTIFICATE_CODE}
    return Unfinished.beside(out, KIND, made_from, settings, config.seed, engine, progress)
