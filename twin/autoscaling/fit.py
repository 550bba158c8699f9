"""Fits the twin of an application: its laws, its load, and where the log has been."""

from logs_schema.logged_days import LoggedDays
from twin.autoscaling.fitting import LawsConfig, coverage_of, fit_laws
from twin.autoscaling.persistence import ApplicationTwin
from twin.autoscaling.scaling_log import ScalingLog, read_scaling_log
from twin.autoscaling.workload import fit_load


def fit_application(log: ScalingLog, config: LawsConfig | None = None) -> ApplicationTwin:
    """The twin of a log; ConfigError where too few of its intervals show how the application answers."""
    laws = fit_laws(log, config)
    return ApplicationTwin(log.deployments, log.interval_s, laws, fit_load(log), coverage_of(log, laws))


def fit_application_days(days: LoggedDays, *, seed: int = 0) -> ApplicationTwin:
    """The twin of some days of an archive.

    Args:
        days: To learn from.
        seed: Not used: what is drawn has seeds of its own (`LawsConfig`).

    Raises:
        ConfigError: The days hold no samples of deployments, or too few.
    """
    return fit_application(read_scaling_log(days.archive, list(days.days)))
