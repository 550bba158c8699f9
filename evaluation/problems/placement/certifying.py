"""Makes a certificate from the measurements of a twin on held-out days."""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from evaluation.certify.answer_lines import SECTION as ANSWERS
from evaluation.certify.biases import SECTION as BIASES
from evaluation.certify.calibrated import SECTION as CALIBRATION
from evaluation.certify.certificate import Certificate, certificate_of
from evaluation.certify.closed_loop import SECTION as CLOSED
from evaluation.certify.config import CertifyConfig
from evaluation.certify.generating import SECTION as POPULATION
from evaluation.certify.held_out import unseen_labels
from evaluation.certify.horizons import SECTION as HORIZON
from evaluation.certify.measuring import PARTS, CertificateParts, PartTask, measure_part
from evaluation.certify.model_class import SECTION as MODEL_CLASS
from evaluation.certify.offloading import SECTION as OFFLOAD
from evaluation.certify.rankings import SECTION as POLICIES
from evaluation.certify.reactions import SECTION as REACTIONS
from evaluation.certify.redirected import SECTION as REDIRECTED
from evaluation.certify.retries import SECTION as REPEATS
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from evaluation.problems.placement.spreading import spread_in_words, spread_of
from logs_schema import Archive
from logs_schema.progress import Progress
from twin.placement.model import PlacementTwin

ABOUT = {
    POPULATION: "Generated requests and arrival times, compared with those of held-out days.",
    ANSWERS: "Logged outcomes, and one forecast of each from the logged state of its moment.",
    BIASES: "Logged outcomes less their forecasts from the logged state at the decision.",
    CALIBRATION: "Calibration of the predicted distributions of outcomes, forecast from the logged state.",
    MODEL_CLASS: "Residuals of run times should be independent of the residuals of the node's last runs, of the "
    "requests that arrive at the node during the run, and of the time since the service last ran there.",
    REACTIONS: "Residuals of acceptance should be independent of how the agent's last requests were served.",
    REPEATS: "Requests should not come again because others failed, but where the twin repeats what fails in it: "
    "else it replays the logged ones whatever a policy does.",
    REDIRECTED: "The twin has requests run where they are offered to; where nodes pass them on, or a scheduler decides "
    "anew, the log shows of a node what is not to be had by choosing it.",
    CLOSED: "A clone of the logged behaviour decides in the twin, from logged states on; the log is the behaviour "
    "itself in the real system. Logged decisions are not replayed: they were reactions to logged run times.",
    OFFLOAD: "Share of requests that ran away from home, over the 12 parts of the day, a clone deciding.",
    HORIZON: "How far the twin's states drift from the log's where decisions, acceptances and runs are the log's and "
    "waits the twin's own.",
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
    keep: Unfinished = NOTHING_KEPT,
    twin_path: Path | None = None,
) -> Certificate:
    """The certificate of a twin on held-out days.

    Args:
        twin: The twin.
        archive: The archive it was fitted on, with days after its training days.
        days: Held-out days; the first ones after training if None.
        config: Sizes and thresholds.
        progress: Progress display.
        twin_hash: Content hash of the twin.
        population: Folder of a fitted population, where the twin generates its requests.
        notes: Further notes on the twin.
        keep: Finished parts, and the engine that measures them ahead.
        twin_path: Folder of the twin, for tasks.

    Raises:
        ConfigError: Days of training, days without requests, or too few requests with known decisions and outcomes.
    """
    encoding = twin.encoding
    parts = CertificateParts(twin, archive, days, config, population, keep, progress)
    if twin_path is not None:
        twin_path, logged = twin_path.absolute(), archive.path.absolute()
        drawn = None if population is None else population.absolute()
        tasks = [PartTask(twin_path, logged, days, config, drawn, keep.folder, name) for name in PARTS]
        shared = [path for path in (twin_path, logged, drawn) if path is not None]
        keep.ahead(measure_part, tasks, "certify", progress, shared)
    chosen, measured = parts.chosen, parts.part(ANSWERS)
    ranked, workload = parts.part(POLICIES), parts.part(POPULATION)
    lines = [*workload.lines, *measured.lines, *ranked.lines]
    charts = {**workload.charts, **measured.charts, **ranked.charts}
    notes = [
        *notes,
        *chosen.notes,
        *measured.notes,
        *workload.notes,
        *unseen_labels(archive, encoding, chosen.days),
    ]
    notes.append(f"the twin's {spread_in_words(spread_of(twin.report))}")
    if twin.encoding.cluster.pace is not None:
        notes.append("runs slow each other: run times one step ahead are works, what a run takes alone")
    if measured.num_unknown:
        notes.append(f"{measured.num_unknown:,} requests are left out: their outcomes are not in the log")
    return certificate_of(
        lines, ABOUT, charts, config, twin=twin_hash, archive=archive.content_hash,
        train_days=encoding.train_days, days=chosen.days, partners=chosen.partners,
        num_requests=measured.num_requests, notes=notes, beside=[POPULATION],
        in_training=measured.in_training,
    )  # fmt: skip
