"""Certificates as products: a twin is never changed, so its certificate lies beside it and names its content hash."""

import datetime as dt
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.certify.certificate import Certificate
from evaluation.certify.certifying import certify, refused
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Verdict
from evaluation.certify.page import render
from evaluation.certify.queues.certifying import certify_queue, refused_queue
from evaluation.pipeline import refuse_foreign
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.product import MANIFEST, read_manifest, verify
from logs_schema.progress import Progress
from twin.ordering.keeping import load_queue_twin
from twin.ordering.types import OrderingError
from twin.placement.model import PlacementTwin
from twin.problems import ORDERING, problem_of

KIND = "certificate"
CERTIFICATE_CODE = 2
"""Of jobs' steps: raised when certificates of the same twin and days become others."""
DATA, PAGE = "certificate.json", "report.html"


@dataclass(frozen=True)
class Certification:
    """What training knows about its twin's certificate.

    Attributes:
        verdict: "pass", "fail", "cannot tell" or "none".
        content_hash: Of the certificate; None where there is none.
        words: For reports, for example "trained in a twin that failed its certificate".
    """

    verdict: str
    content_hash: str | None
    words: str

    @property
    def trouble(self) -> str:
        """Why nobody should rely on the twin, in words; empty for one that passed."""
        if self.passed:
            return ""
        said = {
            "none": "this twin has no certificate: nobody knows how far it may be believed",
            Verdict.FAIL.value: "this twin failed its certificate",
        }
        return said.get(self.verdict, "this twin's certificate cannot tell whether it may be believed")

    @property
    def passed(self) -> bool:
        """Whether the twin is certified."""
        return self.verdict == Verdict.PASS.value

    def facts(self) -> dict[str, Any]:
        """For the manifest of what is trained: the certificate's hash where it was passed, and the words."""
        return {"certificate": self.content_hash if self.passed else None, "certification": self.words}


def folder_beside(twin_path: Path) -> Path:
    """Where the certificate of a twin is kept: next to it, `<twin>.certificate`."""
    whole = twin_path.absolute()
    return whole.with_name(f"{whole.name}.certificate")


def find_certification(twin_path: Path) -> Certification:
    """The certificate beside a twin (or the step `certificate` of its job), if it speaks of this very twin.

    Raises:
        ProductError: This is no twin, or a certificate that speaks of it is damaged.
    """
    wanted = read_manifest(twin_path, "twin").content_hash
    for folder in (folder_beside(twin_path), twin_path.absolute().parent / KIND):
        if not (folder / MANIFEST).is_file():
            continue
        manifest = read_manifest(folder)
        if manifest.kind == KIND and manifest.made_from.get("twin") == wanted:
            verify(folder)
            return certification_in(folder)
    return Certification("none", None, "trained in a twin without a certificate")


def certification_in(folder: Path) -> Certification:
    """What a certificate says, for what is trained in its twin."""
    manifest = read_manifest(folder, KIND)
    told = str(manifest.extra["verdict"])
    words = {
        Verdict.PASS.value: "trained in a twin that passed its certificate",
        Verdict.FAIL.value: "trained in a twin that failed its certificate",
    }.get(told, "trained in a twin whose certificate cannot tell whether it may be believed")
    return Certification(told, manifest.content_hash, words)


def refuse_uncertified(found: Certification, twin_path: Path) -> None:
    """Makes sure that a twin has passed.

    Raises:
        ConfigError: It has not.
    """
    if found.passed:
        return
    raise ConfigError(
        found.trouble,
        where=str(twin_path),
        allowed="a twin that passed schedtwin certify on days it has not seen",
        advice=f"schedtwin certify {twin_path} ARCHIVE, or train all the same with --force; every later report says so",
    )


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
) -> dict[str, Any]:
    """Certifies a twin and writes `certificate.json` and `report.html` into `out`.

    Args:
        out: Folder to write into.
        archive_path: Of the archive.
        twin_path: Of the twin.
        days: Held-out days; the first ones after training if None.
        config: Sizes and thresholds.
        progress: Where to show how far it is.
        population: Folder of a fitted population; by default the twin's own, where it has one.
        record_refusal: What cannot be certified gets a certificate that cannot tell, instead of an error.

    Returns:
        Facts for the manifest.

    Raises:
        ConfigError: The archive is another one, or the days cannot be used.
        ProductError: This is no twin.
    """
    archive, manifest = Archive(archive_path), read_manifest(twin_path, "twin")
    twin_hash, game = manifest.content_hash, manifest.extra.get("imitation")
    refuse_foreign(archive, twin_path)
    make: Callable[..., Certificate]
    refuse: Callable[..., Certificate]
    if problem_of(twin_path) == ORDERING:
        if population is not None:
            raise ConfigError(
                "the twin of a queue holds its own population", where=f"--population {population}",
                allowed="no other population", advice="leave it out",
            )  # fmt: skip
        queue = load_queue_twin(twin_path)
        make, refuse = partial(certify_queue, queue), partial(refused_queue, twin=queue)
    else:
        twin, own = PlacementTwin.load(twin_path), twin_path / "population"
        population = own if population is None and own.is_dir() else population
        notes = [game["in_words"]] if game else []
        make = partial(certify, twin, population=population, notes=notes)
        refuse = partial(refused, twin=twin)
    try:
        certificate = make(archive, days, config, progress, twin_hash=twin_hash)
    except (ConfigError, OrderingError) as error:
        if not record_refusal:
            raise
        certificate = refuse(error, archive=archive, config=config, twin_hash=twin_hash)
    (out / DATA).write_text(json.dumps(certificate.to_json(), indent=1, allow_nan=False) + "\n")
    (out / PAGE).write_text(render(certificate, "Certificate of a twin"), encoding="utf-8")
    return {
        "verdict": certificate.verdict.value,
        "days": list(certificate.days),
        "lines": certificate.counts(),
        "refusal": certificate.refusal,
    }


def load_certificate(folder: Path) -> Certificate:
    """The certificate in a product folder."""
    return Certificate.from_json(json.loads((folder / DATA).read_text()))
