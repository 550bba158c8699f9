"""A certificate: its lines and charts, its inputs, and its overall verdict."""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluation.certify.config import CertifyConfig
from evaluation.certify.family import overall, settled
from evaluation.certify.lines import NO_CLONE, Verdict
from evaluation.certify.lines import Line as Line
from evaluation.certify.since_training import since_training
from evaluation.comparison.report import Chart
from logs_schema import Archive
from logs_schema.errors import SchedtwinError
from logs_schema.records import from_plain, to_plain

EXIT_STATUS = {Verdict.PASS: 0, Verdict.FAIL: 3, Verdict.CANNOT_TELL: 4, Verdict.NOT_APPLICABLE: 4}
"""Of the command: 0 passed, 3 failed, 4 cannot tell."""


@dataclass(frozen=True)
class Section:
    """Charts and description of one section of lines."""

    name: str
    about: str
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True)
class Certificate:
    """The result of comparing a twin with held-out days.

    Attributes:
        verdict: Of all lines together, see `family`.
        lines: In the order of their sections.
        sections: Descriptions and charts of the sections.
        train_days, days, partners: ISO dates: the training days of the twin, the held-out days, and the real day that
            each held-out day is compared with for the noise floor.
        num_requests: Held-out requests that were compared.
        notes: Missing data and fallbacks.
        refusal: Why nothing could be measured; empty otherwise.
        config: Thresholds and sizes.
        twin: Content hash of the twin.
        archive: Content hash of the archive.
        beside: Sections about what training does not use.
        since_training: Where one-step lines fail: whether they do so on the training days too, in words.
    """

    verdict: Verdict
    lines: tuple[Line, ...]
    sections: tuple[Section, ...]
    train_days: tuple[str, ...]
    days: tuple[str, ...]
    partners: tuple[str, ...]
    num_requests: int
    notes: tuple[str, ...]
    refusal: str
    config: Mapping[str, Any]
    twin: str
    archive: str
    beside: tuple[str, ...] = ()
    since_training: str = ""

    @property
    def training(self) -> Verdict:
        """The verdict of the lines about what training uses."""
        return overall(self.lines, but_for=self.beside)

    @property
    def untested(self) -> tuple[str, ...]:
        """Names of the lines that need a clone of the behaviour and had none; the verdict says nothing of them."""
        return tuple(line.name for line in self.lines if line.reason == NO_CLONE)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        plain: dict[str, Any] = to_plain(self)
        return plain

    @staticmethod
    def from_json(content: Any) -> "Certificate":
        """The certificate that `to_json` wrote; SchemaError where it is of another version."""
        return from_plain(
            Certificate,
            {"beside": [], "since_training": ""} | content if isinstance(content, dict) else content,
        )

    def counts(self) -> dict[str, int]:
        """Number of lines of every verdict."""
        return {one.value: sum(line.verdict is one for line in self.lines) for one in Verdict}

    def in_words(self) -> str:
        """The verdict in one sentence."""
        if self.refusal:
            return f"cannot tell: {self.refusal}"
        counts = ", ".join(f"{count} {name}" for name, count in self.counts().items() if count)
        apart = "" if self.training is self.verdict else f"; for what training uses: {self.training.value}"
        untested = f"; closed loop: {NO_CLONE}" if self.untested else ""
        since = f"; {self.since_training}" if self.since_training else ""
        return f"{self.verdict.value} ({counts}){apart}{untested}{since}"


def certificate_of(
    lines: Sequence[Line],
    about: Mapping[str, str],
    charts: Mapping[str, tuple[Chart, ...]],
    config: CertifyConfig,
    *,
    twin: str,
    archive: str,
    train_days: Sequence[dt.date],
    days: Sequence[dt.date] = (),
    partners: Sequence[dt.date] = (),
    num_requests: int = 0,
    notes: Sequence[str] = (),
    refusal: str = "",
    beside: Sequence[str] = (),
    in_training: Mapping[str, Verdict] | None = None,
) -> Certificate:
    """The certificate of some lines.

    Args:
        lines: In the order of their sections, each with its own verdict, before the correction for their number.
        about: Section -> its description.
        charts: Section -> its charts, if any.
        config: Configuration of the certificate.
        twin, archive: Content hashes.
        train_days, days, partners, num_requests, notes, refusal, beside: As in `Certificate`.
        in_training: Verdicts on training days of lines that fail, see `since_training.held_against_training`.
    """
    lines = settled(lines, len(days))
    names = dict.fromkeys(line.section for line in lines)
    return Certificate(
        verdict=overall(lines),
        lines=tuple(lines),
        sections=tuple(Section(name, about[name], charts.get(name, ())) for name in names),
        train_days=tuple(day.isoformat() for day in train_days),
        days=tuple(day.isoformat() for day in days),
        partners=tuple(day.isoformat() for day in partners),
        num_requests=num_requests,
        notes=tuple(notes),
        refusal=refusal,
        config=to_plain(config),
        twin=twin,
        archive=archive,
        beside=tuple(beside),
        since_training=since_training(lines, in_training or {}),
    )


def refusing(
    twin: str, train_days: Sequence[dt.date]
) -> Callable[[SchedtwinError, Archive, CertifyConfig], Certificate]:
    """(error, archive, settings) -> the certificate with the reason why nothing was measured.

    Args:
        twin: Content hash.
        train_days: Days that it was fitted on.
    """

    def refused(error: SchedtwinError, archive: Archive, config: CertifyConfig) -> Certificate:
        return certificate_of(
            [],
            {},
            {},
            config,
            twin=twin,
            archive=archive.content_hash,
            train_days=train_days,
            refusal=error.brief,
        )

    return refused
