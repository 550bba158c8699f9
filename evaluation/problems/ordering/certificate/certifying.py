"""Makes the certificate of a queue's twin: generated and other real weeks, compared with held-out weeks."""

import datetime as dt
from collections.abc import Sequence

import numpy as np

from evaluation.certify.certificate import Certificate, certificate_of
from evaluation.certify.config import CertifyConfig
from evaluation.certify.two_samples import keep, pairs_chart
from evaluation.problems.ordering.certificate.held_out import HeldOutWeeks, hold_out_weeks, weeks_for_rules
from evaluation.problems.ordering.certificate.rankings import SECTION as RULES
from evaluation.problems.ordering.certificate.rankings import ranking_lines
from evaluation.problems.ordering.certificate.replayed_weeks import (
    WEEKS,
    ReplayedWeek,
    ReplayedWeeks,
    fixed_rules,
    replay_weeks,
)
from evaluation.problems.ordering.certificate.waiting import SECTION as QUEUE
from evaluation.problems.ordering.certificate.waiting import WAIT, waiting_lines, waits_trio
from evaluation.problems.ordering.certificate.workload import (
    ACCURACY,
    ANSWERS,
    COLUMNS,
    answer_lines,
    arrival_lines,
    hours_chart,
    jobs_trio,
    shares_chart,
    workload_lines,
)
from evaluation.problems.ordering.certificate.workload import SECTION as WORKLOAD
from evaluation.problems.ordering.same_machine import holds_training
from evaluation.problems.ordering.summary import LOGGED_GAP, logged_mean_wait_s
from evaluation.problems.ordering.weeks import begin_schedule
from logs_schema import Archive
from logs_schema.calendar import DAYS_A_WEEK
from logs_schema.errors import ConfigError
from logs_schema.layout import date_of
from logs_schema.progress import Progress
from twin.ordering.jobs import read_jobs
from twin.ordering.persistence import QueueTwin
from twin.ordering.windows import chosen as chosen_jobs

ABOUT = {
    WORKLOAD: "Generated jobs, submissions and users, compared with those of held-out weeks. Memory: rank correlation "
    "of the used shares of requests between consecutive jobs of a user.",
    ANSWERS: "Used share of the requested time, given the same request or the same used share of the user's last job.",
    QUEUE: "First come first served with EASY on an idealised machine, in generated and in held-out weeks.",
    RULES: "Mean bounded slowdowns of all published rules, with and without EASY, in generated weeks and in exact "
    "replay of the held-out weeks. The logged order is left out: generated weeks have none.",
}


def certify_queue(
    twin: QueueTwin,
    archive: Archive,
    days: Sequence[dt.date] | None,
    config: CertifyConfig,
    progress: Progress,
    *,
    twin_hash: str,
) -> Certificate:
    """The certificate of a queue's twin on held-out weeks.

    Args:
        twin: The twin.
        archive: The archive it was fitted on, with weeks after its training days.
        days: Held-out days, of which whole weeks are taken; the first weeks after training if None.
        config: Sizes and thresholds.
        progress: Where to show how far it is.
        twin_hash: Content hash of the twin.

    Raises:
        ConfigError: Days of training, no whole week with jobs, or too few jobs.
        OrderingError: No job is usable.
    """
    jobs, processors = read_jobs(archive, pool=twin.pool.name), twin.pool.processors
    chosen = hold_out_weeks(jobs, twin, days, config)
    start_s = begin_schedule(jobs, twin.pool, WEEKS.warm)

    def replayed(weeks: HeldOutWeeks, num_copies: int, *, rankings: bool) -> ReplayedWeeks:
        rules = fixed_rules(twin.pool, rankings=rankings)
        return replay_weeks(jobs, start_s, twin, rules, weeks, num_copies, config.seed, progress)

    ruled, num_copies, sampled = weeks_for_rules(jobs, chosen, config) if config.rankings else (chosen, 1, ())
    every = replayed(chosen, 1 if sampled else num_copies, rankings=config.rankings and not sampled)
    real, other, generated = every.real, every.other, every.copies[0]
    num_jobs = sum(len(week.rows) for week in real)
    if num_jobs < config.min_rows:
        raise ConfigError(
            "too few jobs for a certificate",
            where=f"{num_jobs} in {len(real)} held-out weeks from {date_of(chosen.weeks[0])}",
            allowed=f"{config.min_rows} or more",
            advice="name more days (--days)",
        )
    played = replayed(ruled, num_copies, rankings=True) if sampled else every
    with progress.stage("hold them against each other"):
        trio = jobs_trio(real, generated, other, chosen.num_units)
        waits = waits_trio(real, generated, other, chosen.num_units)
        ranked, ranking_charts = ranking_lines(
            played.real, played.copies, played.other, played.chosen, config
        )
        lines = [
            *workload_lines(trio, config),
            *arrival_lines(real, generated, other, chosen, processors, config),
            *answer_lines(trio, config),
            *waiting_lines(waits, real, generated, other, chosen, processors, config),
            *ranked,
        ]
        charts = {
            WORKLOAD: (hours_chart(trio), pairs_chart(keep(trio, COLUMNS), COLUMNS, "other real weeks")),
            ANSWERS: (shares_chart(trio, ACCURACY, "Distribution of run time over requested", "share"),),
            QUEUE: (
                shares_chart(waits, WAIT, "Distribution of waits", "wait (s, logarithmic)", logarithmic=True),
            ),
            RULES: ranking_charts,
        }
    on_users = _notes(twin, real, same_names=holds_training(archive, twin.train_days))
    return certificate_of(
        lines, ABOUT, charts, config, twin=twin_hash, archive=archive.content_hash, train_days=twin.train_days,
        days=_days(chosen.weeks), partners=_days(chosen.partners), num_requests=num_jobs,
        notes=[chosen.about_units, *sampled, *chosen.notes, *on_users],
    )  # fmt: skip


def _days(weeks: Sequence[int]) -> list[dt.date]:
    return [date_of(week + offset) for week in weeks for offset in range(DAYS_A_WEEK)]


def _notes(twin: QueueTwin, real: Sequence[ReplayedWeek], *, same_names: bool) -> list[str]:
    """Notes on the limits of twin and machine; users are identified within one archive only."""
    agents = np.concatenate([replayed.week.jobs.agent[replayed.rows] for replayed in real])
    strange = int(np.sum(~np.isin(agents, twin.population.user_agent)))
    large = sum(
        int(np.sum(replayed.week.jobs.processors[replayed.rows] > twin.pool.processors)) for replayed in real
    )
    logged = [chosen_jobs(replayed.week.jobs, replayed.rows) for replayed in real]
    logged_s = np.array([logged_mean_wait_s(one) for one in logged])
    waits_s = np.concatenate([replayed.waits_s("fcfs+easy") for replayed in real])
    notes = [
        f"{strange:,} of {len(agents):,} held-out jobs are of users without training jobs"
        if same_names
        else "the archive lacks the training days: the number of its users without training jobs is unknown"
    ]
    if large:
        notes.append(
            f"{large:,} held-out jobs are larger than the pool and never start: no wait, no slowdown"
        )
    if np.isfinite(logged_s).all():
        mean_s = np.average(logged_s, weights=[len(replayed.rows) for replayed in real])
        notes.append(
            f"the log's mean wait in these weeks is {mean_s:,.0f} s, that of replay under first come first served with "
            f"EASY {np.nanmean(waits_s):,.0f} s; {LOGGED_GAP}"
        )
    return notes
