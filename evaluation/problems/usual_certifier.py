"""The usual certifier: of a twin without a population of agents."""

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path

from evaluation.certify.certificate import Certificate, refusing
from evaluation.certify.config import CertifyConfig
from evaluation.comparison.products import train_days_in
from evaluation.comparison.training_days import held_out_or_first
from evaluation.jobs.unfinished import Unfinished
from evaluation.problems.kit import Certifier
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest
from logs_schema.progress import Progress
from twin.problems import problem_of

Certify = Callable[
    [Archive, Sequence[dt.date], Sequence[dt.date] | None, CertifyConfig, str, Unfinished], Certificate
]
"""(archive, training days, named held-out days or None, settings, content hash of the twin, finished parts) ->
certificate."""
CertifyDays = Callable[
    [Archive, Sequence[dt.date], Sequence[dt.date], CertifyConfig, str, Unfinished], Certificate
]
"""The same with the held-out days, which may be none."""


def on_first_days(certify: CertifyDays) -> Certify:
    """Certifies on the named days, else on the first ones after training."""

    def held_out(
        archive: Archive,
        train_days: Sequence[dt.date],
        days: Sequence[dt.date] | None,
        config: CertifyConfig,
        twin_hash: str,
        keep: Unfinished,
    ) -> Certificate:
        chosen = held_out_or_first(archive, train_days, days, config.max_days)
        return certify(archive, train_days, chosen, config, twin_hash, keep)

    return held_out


def usual_certifier(twin: Path, population: Path | None, certify: Certify) -> Certifier:
    """The certifier of a twin; ConfigError where a population is named, as it has none."""
    manifest, train_days = read_manifest(twin, "twin"), train_days_in(twin)
    if population is not None:
        raise ConfigError(
            f"a twin of the problem '{problem_of(twin)}' has no population of agents",
            where=f"--population {population}",
            allowed="no population",
            advice="leave it out",
        )

    def make(
        archive: Archive,
        days: Sequence[dt.date] | None,
        config: CertifyConfig,
        _progress: Progress,
        keep: Unfinished,
    ) -> Certificate:
        return certify(archive, train_days, days, config, manifest.content_hash, keep)

    return Certifier(make, refusing(manifest.content_hash, train_days))
