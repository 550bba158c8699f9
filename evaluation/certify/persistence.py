"""Certificates as products: a twin is never changed, so its certificate is a product of its own, with its hash."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.certify.certificate import Certificate
from evaluation.certify.lines import Verdict
from evaluation.comparison.products import NO_CERTIFICATE
from logs_schema.errors import ConfigError
from logs_schema.product import MANIFEST, read_manifest, verify

KIND = "certificate"
CERTIFICATE_CODE = 35
"""Code version of jobs' steps: raised when certificates of the same twin and days change."""
ANSWERS_PASSED = (
    "trained in a twin that passed its certificate but for the workload model, which training does not use"
)
DATA, PAGE = "certificate.json", "report.html"


@dataclass(frozen=True)
class Certification:
    """State of a twin's certificate, as training records it.

    Attributes:
        verdict: "pass", "fail", "cannot tell" or "none".
        training: The same of the lines about what training uses.
        content_hash: Content hash of the certificate; None where there is none.
        words: Description for reports, for example "trained in a twin that failed its certificate".
    """

    verdict: str
    training: str
    content_hash: str | None
    words: str

    @property
    def trouble(self) -> str:
        """Why the twin is not certified, as a sentence; empty for one that passed."""
        if self.passed:
            return ""
        reasons = {
            "none": "this twin has no certificate: its accuracy is unknown",
            Verdict.FAIL.value: "this twin failed its certificate",
        }
        return reasons.get(self.training, "this twin's certificate cannot tell whether the twin is accurate")

    @property
    def held_back(self) -> str:
        """Why a job trains nothing in the twin, as a sentence; empty for one that passed."""
        if self.passed:
            return ""
        return f"Nothing was trained, and nothing exported: {self.trouble} (--force trains all the same)."

    @property
    def passed(self) -> bool:
        """Whether the twin is certified for training."""
        return self.training == Verdict.PASS.value

    @property
    def failed(self) -> bool:
        """Whether it failed: what training uses was measured to be wrong."""
        return self.training == Verdict.FAIL.value

    def facts(self) -> dict[str, Any]:
        """Entries of a trained policy's manifest: the certificate's hash where it passed, and the description."""
        return {"certificate": self.content_hash if self.passed else None, "certification": self.words}


def folder_beside(twin_path: Path) -> Path:
    """Folder of a twin's certificate: next to the twin, `<twin>.certificate`."""
    whole = twin_path.absolute()
    return whole.with_name(f"{whole.name}.certificate")


def usual_folders(twin_path: Path) -> tuple[Path, Path]:
    """Where the certificate of a twin is looked for: next to it, and the step `certificate` of its job."""
    return folder_beside(twin_path), twin_path.absolute().parent / KIND


def certification_folder(twin_path: Path, kept: Path | None = None) -> Path | None:
    """The certificate of exactly this twin: the one that was kept elsewhere, else as in `usual_folders`; None without.

    Raises:
        ConfigError: The one that was kept elsewhere is of another twin.
        ProductError: This is no twin, or its certificate is missing where it was kept, or damaged.
    """
    wanted = read_manifest(twin_path, "twin").content_hash
    if kept is not None and read_manifest(kept, KIND).made_from.get("twin") != wanted:
        raise ConfigError(
            "this certificate is of another twin",
            where=str(kept),
            allowed=f"one of {twin_path}",
            advice=f"schedtwin certify {twin_path} ARCHIVE --keep FOLDER",
        )
    for folder in usual_folders(twin_path) if kept is None else (kept,):
        if not (folder / MANIFEST).is_file():
            continue
        manifest = read_manifest(folder)
        if manifest.kind == KIND and manifest.made_from.get("twin") == wanted:
            verify(folder)
            return folder
    return None


def certification_in(folder: Path | None) -> Certification:
    """State of the certificate in a folder, as `certification_folder` finds it; None: there is none."""
    if folder is None:
        return Certification("none", "none", None, NO_CERTIFICATE)
    manifest = read_manifest(folder, KIND)
    verdict = str(manifest.extra["verdict"])
    training = str(manifest.extra.get("training", verdict))
    if verdict != training == Verdict.PASS.value:
        return Certification(verdict, training, manifest.content_hash, ANSWERS_PASSED)
    words = {
        Verdict.PASS.value: "trained in a twin that passed its certificate",
        Verdict.FAIL.value: "trained in a twin that failed its certificate",
    }.get(training, "trained in a twin whose certificate cannot tell whether the twin is accurate")
    return Certification(verdict, training, manifest.content_hash, words)


def certification_facts(inputs: Mapping[str, Path]) -> dict[str, Any]:
    """`Certification.facts` of the certificate among a step's inputs; nothing where there is none."""
    return certification_in(inputs[KIND]).facts() if KIND in inputs else {}


def refuse_uncertified(found: Certification, twin_path: Path) -> None:
    """Raises unless a twin has passed its certificate.

    Raises:
        ConfigError: It has not.
    """
    if found.passed:
        return
    raise ConfigError(
        found.trouble,
        where=str(twin_path),
        allowed="a twin that passed schedtwin certify on held-out days",
        advice=f"schedtwin certify {twin_path} ARCHIVE; if it had --keep FOLDER, --certificate FOLDER names it here; "
        "or train all the same with --force, which later reports state",
    )


def load_certificate(folder: Path) -> Certificate:
    """The certificate in a product folder."""
    return Certificate.from_json(json.loads((folder / DATA).read_text()))
