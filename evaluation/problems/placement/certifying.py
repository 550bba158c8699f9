"""Makes a certificate: forecasts held-out days from logged states, plays them in closed loop, and holds both against
the log."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from evaluation.certify.answering import COLUMNS, answer_lines, answers_trio, distribution_charts, refuse_few
from evaluation.certify.answering import SECTION as ANSWERS
from evaluation.certify.behaving import clone_line, fit_behaviour, resting_on
from evaluation.certify.believed import Believed, of_twin
from evaluation.certify.biases import SECTION as BIASES
from evaluation.certify.biases import bias_lines
from evaluation.certify.calibrated import SECTION as CALIBRATION
from evaluation.certify.calibrated import calibration_lines
from evaluation.certify.certificate import Certificate, certificate_of, refusal_in_words
from evaluation.certify.closed_loop import SECTION as CLOSED
from evaluation.certify.closed_loop import closed_trio, distance_lines, level_lines
from evaluation.certify.config import CertifyConfig
from evaluation.certify.forecasting import forecast
from evaluation.certify.generating import SECTION as POPULATION
from evaluation.certify.generating import population_lines
from evaluation.certify.held_out import HeldOutDays, hold_out, unseen_labels
from evaluation.certify.horizons import SECTION as HORIZON
from evaluation.certify.horizons import horizon_lines
from evaluation.certify.lines import Line
from evaluation.certify.model_class import SECTION as MODEL_CLASS
from evaluation.certify.model_class import model_class_lines
from evaluation.certify.offloading import SECTION as OFFLOAD
from evaluation.certify.offloading import offload_lines
from evaluation.certify.playing import HeldOutDay, closed_loop_days, real_days, states_with_logged_luck
from evaluation.certify.rankings import SECTION as POLICIES
from evaluation.certify.rankings import ranking_lines
from evaluation.certify.two_samples import pairs_chart
from evaluation.problems.placement.spreading import spread_in_words, spread_of
from evaluation.report import Chart
from logs_schema import Archive
from logs_schema.errors import SchedtwinError
from logs_schema.progress import Progress
from twin.placement.encoding import DAY_S, day_start_s
from twin.placement.model import PlacementTwin, encode_days

ABOUT = {
    POPULATION: "Generated requests and arrival times against those of held-out days.",
    ANSWERS: "Logged outcomes, and one forecast of each from the logged state of its moment.",
    BIASES: "What came true, less what was forecast from the logged state of its moment.",
    CALIBRATION: "Whether what came true lies where the twin said it would, forecast from the logged state.",
    MODEL_CLASS: "What is left of run times when the forecast is taken off should depend on nothing: not on how the "
    "node's last runs missed their forecasts, nor on who comes to the node while a request runs.",
    CLOSED: "A clone of the logged behaviour decides in the twin, from logged states on; the log is the behaviour "
    "itself in the system itself. The logged decisions are not played: they were reactions to runs that happened.",
    OFFLOAD: "Share of requests that ran away from home, over the 12 parts of the day, a clone deciding.",
    HORIZON: "How far the twin's states drift from the log's where decisions, acceptances and runs are the log's and "
    "waits the twin's own.",
    POLICIES: "Values of policies that no one trained, in the twin and in the truth.",
}


class MeasuredSections(NamedTuple):
    """What was measured of a system under test."""

    lines: list[Line]
    charts: dict[str, tuple[Chart, ...]]
    first_day: HeldOutDay
    num_requests: int
    num_unknown: int


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
    believed = of_twin(twin)
    chosen = hold_out(archive, encoding.train_days, days, config)
    measured = measure(believed, archive, chosen, config, progress)
    with progress.stage("fixed policies"):
        ranked, ranking_charts = ranking_lines(archive, twin, measured.first_day, config)
    with progress.stage("population"):
        workload = population_lines(archive, population, encoding.train_days, chosen, config)
    lines = [*workload.lines, *measured.lines, *ranked]
    charts = {POPULATION: workload.charts, **measured.charts, POLICIES: ranking_charts}
    notes = [*notes, *chosen.notes, *workload.notes, *unseen_labels(archive, encoding, chosen.days)]
    notes.append(f"the twin's {spread_in_words(spread_of(twin.report))}")
    if measured.num_unknown:
        notes.append(
            f"{measured.num_unknown:,} requests are left out: the log does not know what came of them"
        )
    return certificate_of(
        lines, ABOUT, charts, config, twin=twin_hash, archive=archive.content_hash,
        train_days=encoding.train_days, days=chosen.days, partners=chosen.partners,
        num_requests=measured.num_requests, notes=notes,
    )  # fmt: skip


def measure(
    believed: Believed, archive: Archive, chosen: HeldOutDays, config: CertifyConfig, progress: Progress
) -> MeasuredSections:
    """Everything that is measured of a system under test, whatever it is.

    Args:
        believed: The system.
        archive: Of the log.
        chosen: Held-out days and their partners.
        config: Of the certificate.
        progress: Where to show how far it is.

    Raises:
        ConfigError: Days without requests, or too few with known decisions and outcomes.
    """
    encoding = believed.encoding
    with progress.stage("play the held-out days"):
        real = real_days(archive, encoding, [*chosen.days, *chosen.partners], num_steps=config.num_steps)
        held, partners = ([real[day] for day in part] for part in (chosen.days, chosen.partners))
        parts = [encode_days(archive, encoding, [day], num_steps=config.num_steps) for day in chosen.days]
        refuse_few(parts, config.min_rows)
        states = states_with_logged_luck(believed, held, seed=config.seed)
    behaviour = fit_behaviour(believed, config, progress)
    with progress.stage("forecast them"):
        end_s = day_start_s(archive.days("requests")[-1]) + DAY_S
        told = forecast(believed, behaviour, parts, seed=config.seed, known_until_s=end_s)
        trio = answers_trio(told, partners)
        clone = clone_line(CLOSED, told, config)
    with progress.stage("play them in closed loop"):
        simulated = closed_loop_days(believed, behaviour, held, archive, seed=config.seed)
    with progress.stage("hold them against each other"):
        calibrated, calibration_charts = calibration_lines(told, config)
        closed = closed_trio(held, simulated, partners)
        resting = [*level_lines(held, simulated, encoding, config), *distance_lines(closed, config)]
        offload, offload_charts = offload_lines(held, simulated, partners, encoding, config)
        horizon, horizon_charts = horizon_lines(held, states, partners, config)
        lines = [
            *answer_lines(trio, config), *bias_lines(told, config), *calibrated, *model_class_lines(told, config),
            clone, *resting_on(clone, [*resting, *offload]), *horizon,
        ]  # fmt: skip
    charts = {
        ANSWERS: (*distribution_charts(trio), pairs_chart(trio, COLUMNS)),
        CALIBRATION: calibration_charts,
        CLOSED: distribution_charts(closed, "twin, a clone deciding"),
        OFFLOAD: offload_charts,
        HORIZON: horizon_charts,
    }
    return MeasuredSections(lines, charts, held[0], len(trio.real.unit), int((~told.known).sum()))


def refused(
    error: SchedtwinError, twin: PlacementTwin, archive: Archive, config: CertifyConfig, *, twin_hash: str
) -> Certificate:
    """The certificate that says that nothing could be measured, and why."""
    return certificate_of(
        [], ABOUT, {}, config, twin=twin_hash, archive=archive.content_hash,
        train_days=twin.encoding.train_days, refusal=refusal_in_words(error),
    )  # fmt: skip
