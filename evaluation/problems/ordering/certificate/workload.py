"""The workload: jobs, submissions and users of generated weeks, compared with those of held-out weeks."""

from collections.abc import Sequence

import numpy as np

from evaluation.certify.arrival_statistics import PARTS_OF_DAY, arrival_statistics
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import Line, against_floor, combine, not_applicable
from evaluation.certify.resampled import Units, kl_of_codes, mean_of
from evaluation.certify.samples import Coding, Sample
from evaluation.certify.two_samples import PAIR_BINS, Trio, keep, two_sample_lines
from evaluation.comparison.bootstrap import Statistic
from evaluation.comparison.report import Chart, Curve
from evaluation.problems.ordering.certificate.held_out import HeldOutWeeks
from evaluation.problems.ordering.certificate.replayed_weeks import ReplayedWeek
from logs_schema.calendar import DAY_S
from twin.ordering.population_check import stretch_figures
from twin.ordering.types import Jobs

SECTION = "workload model"
ANSWERS = "run times given the request"
PROCESSORS, REQUESTED, RUN, ACCURACY, HOUR = (
    "processors",
    "requested run time",
    "run time",
    "run time over requested",
    "hour of day",
)
COLUMNS = (PROCESSORS, REQUESTED, RUN, ACCURACY, HOUR)
LAST = "run time over requested of the user's last job"
LABELS = ("held-out weeks", "twin", "other real weeks")
LOGARITHMS = ("rate", "load asked for", "users", "dispersion", "variation of gaps")
DIFFERENCES = ("autocorrelation of gaps", "memory of users")
OF_USERS = ("users", "memory of users")
HIDDEN = "the log does not name the users"


def workload_lines(trio: Trio, config: CertifyConfig) -> list[Line]:
    """Lines of the jobs as a table of columns, one by one and together."""
    return two_sample_lines(SECTION, keep(trio, COLUMNS), COLUMNS, config)


def answer_lines(trio: Trio, config: CertifyConfig) -> list[Line]:
    """The used share of a job's request, given the request, and given the used share of its user's last job.

    `KL(real || twin)` of a column given another is the KL of the pair less that of the other alone (chain rule).
    """
    lines = [_given_line(trio, given, config) for given in (REQUESTED, PROCESSORS)]
    if np.isfinite(trio.real.sample.continuous[LAST]).any():
        return [*lines, _given_line(trio, LAST, config)]
    return [*lines, not_applicable(ANSWERS, _given_name(LAST), HIDDEN)]


def arrival_lines(
    real: Sequence[ReplayedWeek],
    twin: Sequence[ReplayedWeek],
    other: Sequence[ReplayedWeek],
    chosen: HeldOutWeeks,
    processors: float,
    config: CertifyConfig,
) -> list[Line]:
    """Lines of submissions: mean distances over the units, of logarithms or (correlations) of the values themselves."""
    tables = [_figures(weeks, chosen, processors) for weeks in (real, twin, other)]
    unit = np.arange(chosen.num_units)
    lines = []
    for name in (*LOGARITHMS, *DIFFERENCES):
        if name in OF_USERS and not _says_who(real):
            lines.append(not_applicable(SECTION, name, HIDDEN))
            continue
        columns = [table[name] for table in tables]
        if name in LOGARITHMS:
            columns = [np.log(np.where(column > 0.0, column, np.nan)) for column in columns]
        distance, floor = (np.abs(column - columns[0]) for column in columns[1:])
        measure = "mean log ratio" if name in LOGARITHMS else "mean distance"
        lines.append(
            against_floor(
                SECTION,
                f"{name} by {chosen.unit_name}",
                measure,
                mean_of(distance, unit, chosen.num_units),
                mean_of(floor, unit, chosen.num_units),
                chosen.num_units,
                config.thresholds.arrivals,
                config.intervals(),
            )
        )
    return lines


def jobs_trio(
    real: Sequence[ReplayedWeek], twin: Sequence[ReplayedWeek], other: Sequence[ReplayedWeek], num_units: int
) -> Trio:
    """The jobs that count, as tables of columns; durations as `log(1 + seconds)`."""
    return Trio(_together(real), _together(twin), _together(other), num_units)


def hours_chart(trio: Trio) -> Chart:
    """Share of the submissions in every two hours."""
    middle = tuple(24.0 / PARTS_OF_DAY * (np.arange(PARTS_OF_DAY) + 0.5))
    curves = []
    for label, part in zip(LABELS, trio[:3], strict=True):
        hours = part.sample.continuous[HOUR]
        share = np.histogram(hours, PARTS_OF_DAY, (0.0, 24.0))[0] / max(len(hours), 1)
        curves.append(Curve(label, middle, tuple(map(float, share))))
    return Chart("Submissions over the day", "hour of the day (UTC)", "share of jobs", tuple(curves))


def shares_chart(trio: Trio, name: str, title: str, label: str, *, logarithmic: bool = False) -> Chart:
    """Distribution functions of a column; a logarithmic one is shown in its own unit."""
    shares = np.linspace(0.0, 1.0, 101)
    curves = []
    for curve, part in zip(LABELS, trio[:3], strict=True):
        values = part.sample.continuous[name]
        values = values[np.isfinite(values)]
        if len(values):
            places = np.quantile(values, shares)
            curves.append(
                Curve(curve, tuple(map(float, np.expm1(places) if logarithmic else places)), tuple(shares))
            )
    return Chart(title, label, "share of jobs below", tuple(curves), logarithmic=logarithmic)


def _given_name(given: str) -> str:
    return f"KL of {ACCURACY}, given {given}"


def _says_who(weeks: Sequence[ReplayedWeek]) -> bool:
    return any(np.any(replayed.week.jobs.agent[replayed.rows] >= 0) for replayed in weeks)


def _given_line(trio: Trio, given: str, config: CertifyConfig) -> Line:
    parts = keep(trio, (ACCURACY, given))[:3]
    coding = Coding(parts[0].sample, PAIR_BINS)
    first, second = (coding.names.index(name) for name in (given, ACCURACY))
    codes = [coding.codes(part.sample) for part in parts]
    units = [part.unit for part in parts]
    size, width = coding.num_codes(given), coding.num_codes(ACCURACY)

    def distance(part: int) -> Statistic:
        pair = [codes[index][:, first] * width + codes[index][:, second] for index in (0, part)]
        alone = [codes[index][:, first] for index in (0, part)]
        both, one = (
            kl_of_codes(some[0], units[0], some[1], units[part], num, trio.num_units)
            for some, num in ((pair, size * width), (alone, size))
        )
        return combine([both, one], lambda values: np.asarray(values[0] - values[1]))

    return against_floor(
        ANSWERS,
        _given_name(given),
        "nats",
        distance(1),
        distance(2),
        trio.num_units,
        config.thresholds.pair_kl,
        config.intervals(),
    )


def _figures(weeks: Sequence[ReplayedWeek], chosen: HeldOutWeeks, processors: float) -> dict[str, np.ndarray]:
    """[units] of every figure; NaN where there are too few jobs."""
    rows = []
    for replayed in weeks:
        week, jobs = replayed.week, replayed.week.jobs
        for part in range(chosen.units_per_week):
            first_day, length_s = week.first_day + part * chosen.unit_days, chosen.unit_days * DAY_S
            figures = stretch_figures(jobs, first_day, chosen.unit_days, processors)
            since_s = jobs.arrival_s - part * length_s
            times_s = since_s[(since_s >= 0.0) & (since_s < length_s)]
            gaps = arrival_statistics(times_s, length_s, num_parts=PARTS_OF_DAY * chosen.unit_days)
            rows.append(
                {
                    "rate": figures.jobs_per_day,
                    "load asked for": figures.load,
                    "users": figures.num_users,
                    "dispersion": figures.dispersion,
                    "variation of gaps": gaps.gap_variation,
                    "autocorrelation of gaps": gaps.autocorrelation,
                    "memory of users": figures.memory,
                }
            )
    return {name: np.array([row[name] for row in rows], float) for name in rows[0]}


def _together(weeks: Sequence[ReplayedWeek]) -> Units:
    tables = [_table(replayed.week.jobs, replayed.rows) for replayed in weeks]
    columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
    return Units(Sample(columns, {}), np.concatenate([replayed.unit for replayed in weeks]))


def _table(jobs: Jobs, rows: np.ndarray) -> dict[str, np.ndarray]:
    accuracy = jobs.run_s[rows] / jobs.requested_s[rows]
    return {
        PROCESSORS: jobs.processors[rows].astype(float),
        REQUESTED: np.log1p(jobs.requested_s[rows]),
        RUN: np.log1p(jobs.run_s[rows]),
        ACCURACY: accuracy,
        HOUR: jobs.arrival_s[rows] % DAY_S / 3600.0,
        LAST: _last_of_user(accuracy, jobs.agent[rows]),
    }


def _last_of_user(values: np.ndarray, agent: np.ndarray) -> np.ndarray:
    """[jobs] the value of the same user's previous job; NaN for the first one, and for unnamed users."""
    order = np.argsort(agent, kind="stable")
    last = np.full(len(values), np.nan)
    same = np.flatnonzero((agent[order][1:] == agent[order][:-1]) & (agent[order][1:] >= 0))
    last[order[same + 1]] = values[order[same]]
    return last
