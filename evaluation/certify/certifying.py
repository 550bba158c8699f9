"""Makes a certificate: plays held-out days in the twin and holds what comes of it against the log."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from evaluation.certify.answering import (
    COLUMNS,
    OFFLOAD,
    answer_lines,
    answers_trio,
    distribution_charts,
    offload_lines,
)
from evaluation.certify.answering import SECTION as ANSWERS
from evaluation.certify.calibrated import SECTION as CALIBRATION
from evaluation.certify.calibrated import calibration_lines
from evaluation.certify.certificate import Certificate, certificate_of, refusal_in_words
from evaluation.certify.config import CertifyConfig
from evaluation.certify.generating import SECTION as POPULATION
from evaluation.certify.generating import population_lines
from evaluation.certify.held_out import hold_out, unseen_labels
from evaluation.certify.horizons import SECTION as HORIZON
from evaluation.certify.horizons import horizon_lines
from evaluation.certify.playing import real_days, twin_days
from evaluation.certify.rankings import SECTION as POLICIES
from evaluation.certify.rankings import ranking_lines
from evaluation.certify.two_samples import pairs_chart
from evaluation.spreading import spread_in_words, spread_of
from logs_schema import Archive
from logs_schema.errors import SchedtwinError
from logs_schema.progress import Progress
from twin.placement.model import PlacementTwin

ABOUT = {
    POPULATION: "Generated requests and arrival times against those of held-out days.",
    ANSWERS: "Outcomes of the same requests under the same decisions, in the log and in the twin after it has lived on "
    "its own for a while.",
    OFFLOAD: "Share of requests that ran away from home, over the 12 parts of the day.",
    CALIBRATION: "Whether what came true lies where the twin said it would, predicted from the logged state.",
    HORIZON: "How far the twin's states drift from the log's while it follows the logged decisions.",
    POLICIES: "Values of policies that no one trained, in the twin and in the truth.",
}


def certify(
    twin: PlacementTwin,
    archive: Archive,
    days: Sequence[dt.date] | None,
    config: CertifyConfig,
    progress: Progress,
    *,
    twin_hash: str,
    population: Path | None = None,
    notes: Sequence[str] = (),
) -> Certificate:
    """The certificate of a twin on held-out days.

    Args:
        twin: The twin.
        archive: The archive it was fitted on, with days after its training days.
        days: Held-out days; the first ones after training if None.
        config: Sizes and thresholds.
        progress: Where to show how far it is.
        twin_hash: Content hash of the twin.
        population: Folder of a fitted population, where the twin generates its requests.
        notes: What else is to be told of the twin.

    Raises:
        ConfigError: Days of training, days without requests, or too few requests with known decisions and outcomes.
    """
    encoding = twin.encoding
    chosen = hold_out(archive, encoding.train_days, days, config)
    with progress.stage("play the held-out days"):
        real = real_days(archive, encoding, [*chosen.days, *chosen.partners], num_steps=config.num_steps)
        held, partners = ([real[day] for day in part] for part in (chosen.days, chosen.partners))
        lived = twin_days(twin, held, archive, seed=config.seed)
    trio = answers_trio(held, lived, partners, min_rows=config.min_rows)
    with progress.stage("hold them against each other"):
        answers = answer_lines(trio, config)
        offload, offload_charts = offload_lines(held, lived, partners, encoding, config)
        calibrated, calibration_charts = calibration_lines(twin, held, config)
        horizon, horizon_charts = horizon_lines(held, lived, partners, config)
    with progress.stage("fixed policies"):
        ranked, ranking_charts = ranking_lines(archive, twin, held[0], config)
    with progress.stage("population"):
        asking = population_lines(archive, population, encoding.train_days, chosen, config)
    lines = [*asking.lines, *answers, *offload, *calibrated, *horizon, *ranked]
    charts = {
        POPULATION: asking.charts,
        ANSWERS: (*distribution_charts(trio), pairs_chart(trio, COLUMNS)),
        OFFLOAD: offload_charts,
        CALIBRATION: calibration_charts,
        HORIZON: horizon_charts,
        POLICIES: ranking_charts,
    }
    num_rows = len(trio.real.unit)
    num_counted = sum(int(day.counted.sum()) for day in held)
    notes = [*notes, *chosen.notes, *asking.notes, *unseen_labels(archive, encoding, chosen.days)]
    notes.append(f"the twin's {spread_in_words(spread_of(twin.report))}")
    if num_counted > num_rows:
        notes.append(
            f"{num_counted - num_rows:,} of {num_counted:,} requests are left out: log or twin do not know "
            "what came of them"
        )
    return certificate_of(
        lines, ABOUT, charts, config, twin=twin_hash, archive=archive.content_hash,
        train_days=encoding.train_days, days=chosen.days, partners=chosen.partners, num_requests=num_rows, notes=notes,
    )  # fmt: skip


def refused(
    error: SchedtwinError, twin: PlacementTwin, archive: Archive, config: CertifyConfig, *, twin_hash: str
) -> Certificate:
    """The certificate that says that nothing could be measured, and why."""
    return certificate_of(
        [], ABOUT, {}, config, twin=twin_hash, archive=archive.content_hash,
        train_days=twin.encoding.train_days, refusal=refusal_in_words(error),
    )  # fmt: skip
