"""Certificates as products: a twin is never changed, so its certificate lies beside it and names its content hash."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.certify.certificate import Certificate
from evaluation.certify.lines import Verdict
from evaluation.comparison.products import NO_CERTIFICATE
from logs_schema.errors import ConfigError
from logs_schema.product import MANIFEST, read_manifest, verify

KIND = "certificate"
CERTIFICATE_CODE = 3
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
    def held_back(self) -> str:
        """Why a job trains nothing in the twin, in words; empty for one that passed."""
        if self.passed:
            return ""
        return f"Nothing was trained, and nothing exported: {self.trouble} (--force goes on all the same)."

    @property
    def passed(self) -> bool:
        """Whether the twin is certified."""
        return self.verdict == Verdict.PASS.value

    @property
    def failed(self) -> bool:
        """Whether the certificate was refused: what the twin says was seen to be wrong."""
        return self.verdict == Verdict.FAIL.value

    def facts(self) -> dict[str, Any]:
        """For the manifest of what is trained: the certificate's hash where it was passed, and the words."""
        return {"certificate": self.content_hash if self.passed else None, "certification": self.words}


def folder_beside(twin_path: Path) -> Path:
    """Where the certificate of a twin is kept: next to it, `<twin>.certificate`."""
    whole = twin_path.absolute()
    return whole.with_name(f"{whole.name}.certificate")


def certification_folder(twin_path: Path) -> Path | None:
    """The certificate beside a twin (or the step `certificate` of its job) that speaks of this very twin, if any does.

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
            return folder
    return None


def find_certification(twin_path: Path) -> Certification:
    """What the certificate of a twin says, see `certification_folder`."""
    folder = certification_folder(twin_path)
    if folder is None:
        return Certification("none", None, NO_CERTIFICATE)
    return certification_in(folder)


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


def load_certificate(folder: Path) -> Certificate:
    """The certificate in a product folder."""
    return Certificate.from_json(json.loads((folder / DATA).read_text()))
