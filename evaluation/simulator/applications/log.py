"""Logs of an application under an ordinary autoscaler: days of `deployment_samples`, and the users' request rates.

The autoscaler is Kubernetes' own for processor use, run by an operator: targets and the cores of replicas differ from
deployment to deployment and are changed from day to day, and now and then somebody scales by hand. Every day is played
with half an hour before it, so that it begins as it would in the course of things.
"""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa

from evaluation.simulator.applications.application import Application
from evaluation.simulator.applications.load import made_rates
from evaluation.simulator.applications.response import application_response, limits_of, usual_grants
from evaluation.simulator.calendar_days import validate_days
from logs_schema.archive_writer import ArchiveWriter
from logs_schema.calendar import DAY_S
from logs_schema.columns import INSTANT
from logs_schema.errors import ConfigError
from logs_schema.formats.describing import ABSOLUTE_CLOCK, describe
from logs_schema.tables import GATEWAY
from offline_rl.rules.autoscaling.autoscaler import Played, follow
from offline_rl.rules.autoscaling.horizontal_pod import horizontal_pod
from offline_rl.rules.autoscaling.operated import operated
from twin.autoscaling.config import AutoscalingConfig
from twin.autoscaling.rewards import cost_under_slo
from twin.autoscaling.types import quantile_s
from twin.contracts import Array

WARM_UP_S = 1800
OPERATOR = "operator"
OPERATORS = (OPERATOR, "steady")
"""Who writes a log: an operator as above, who does where none is named, or the autoscaler at its default settings,
never touched."""


@dataclass(frozen=True)
class ApplicationReport:
    """What `simulate_application` wrote."""

    archive: str
    preset: str
    behaviour: str
    seed: int
    first_day: str
    num_days: int
    interval_s: float
    num_rows: int
    num_requests: int
    num_failures: int
    mean_p95_s: float


def scaling_config(application: Application, interval_s: float = 30.0) -> AutoscalingConfig:
    """How decisions are taken in an application."""
    return AutoscalingConfig(interval_s=interval_s, slo_s=application.slo_s, reach=(1.0, 1.0, 2.0))


def simulate_application(
    application: Application, num_days: int, behaviour: str, seed: int, out: Path, *,
    first_day: dt.date, interval_s: float = 30.0, series: np.ndarray | None = None, replace: bool = False,
    begin: int = 0,
) -> ApplicationReport:  # fmt: skip
    """Writes days `begin` to `begin + num_days - 1` of an application as an archive.

    Args:
        application: Which.
        num_days: How many days, >= 1.
        behaviour: One of `OPERATORS`.
        seed: Of loads, noise and the operator.
        out: Folder of the archive.
        first_day: Calendar day of day 0.
        interval_s: Length of an interval.
        series: A real series of request rates to lay under it.
        replace: Whether an archive that is already there may be replaced.
        begin: First day that is written; load grows, and its mix drifts, from day 0 on.

    Raises:
        ConfigError: Unknown behaviour, no days, or an interval that does not divide a day.
        ArchiveError: The folder is in the way.
    """
    if behaviour not in OPERATORS or num_days < 1 or not interval_s > 0.0 or DAY_S % interval_s:
        raise ConfigError(
            f"cannot write {num_days} days of intervals of {interval_s:g} s under '{behaviour}'",
            where="simulate",
            allowed=f"1 day or more, intervals that divide a day, a behaviour among {', '.join(OPERATORS)}",
        )
    validate_days(first_day, begin + num_days)
    config = scaling_config(application, interval_s)
    rates = made_rates(application, num_days, interval_s, seed, first_day=begin, series=series)
    truth = {
        "preset": application.name,
        "behaviour": behaviour,
        "seed": seed,
        "num_days": num_days,
        "interval_s": interval_s,
        "first_day": first_day.isoformat(),
        "series": series is not None,
    }
    notes = [f"Simulated application {application.name!r}: topology of the public benchmark, synthetic work."]
    facts = describe("simulated", clock=ABSOLUTE_CLOCK, notes=notes, ground_truth=truth)
    played = _days(application, config, rates, num_days, behaviour, seed)
    num_rows = 0
    with ArchiveWriter(out, source={}, facts=facts, replace=replace) as archive:
        for day in range(num_days):
            rows = jax.tree.map(lambda leaf, day=day: leaf[..., day], played)
            table = samples_table(application, config, rows, first_day + dt.timedelta(days=begin + day))
            archive.write("deployment_samples", table, source="simulation", first_row=num_rows + 1)
            num_rows += len(table)
    requests = played.gateway.rate_per_s * interval_s
    return ApplicationReport(
        str(Path(out).absolute()), application.name, behaviour, seed, first_day.isoformat(), num_days, interval_s,
        num_rows, int(requests.sum()), int(played.gateway.num_failures.sum()),
        float(np.mean(quantile_s(jnp.moveaxis(jnp.asarray(played.gateway.latency), 1, 0), 0.95))),
    )  # fmt: skip


def _days(
    application: Application,
    config: AutoscalingConfig,
    rates: np.ndarray,
    num_days: int,
    behaviour: str,
    seed: int,
) -> Played:
    """All days side by side; leaves [intervals of a day, ..., days], NumPy."""
    per_day, warm_up = int(DAY_S // config.interval_s), int(WARM_UP_S // config.interval_s)
    starts = np.arange(num_days) * per_day - warm_up - 1  # it plays the rows after it
    steps = per_day + warm_up
    limits = limits_of(application)
    autoscaler = (
        operated(config, limits, len(application.services), num_days, seed)
        if behaviour == OPERATOR
        else horizontal_pod(config, limits)
    )
    response = application_response(
        application,
        config,
        rates,
        steps,
        grants=usual_grants(application, rates[: per_day // 4]),
        starts=starts,
    )

    @jax.jit
    def play(key: Array) -> Played:
        return follow(key, response, config, limits, autoscaler, cost_under_slo(), steps, (num_days,))

    return jax.tree.map(lambda leaf: np.asarray(leaf)[warm_up:], play(jax.random.key(seed)))


def samples_table(
    application: Application, config: AutoscalingConfig, played: Played, day: dt.date
) -> pa.Table:
    """One day as the archive's `deployment_samples`: leaves of `played` [intervals, ...]."""
    intervals, names = played.measured.ready.shape[0], [*application.deployments, GATEWAY]
    midnight_us = int(dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC).timestamp()) * 1_000_000
    time_us = midnight_us + np.round(np.arange(intervals) * config.interval_s * 1e6).astype(np.int64)

    def column(of_deployments: Any, of_gateway: Any) -> np.ndarray:
        left = np.full((intervals, len(names) - 1), np.nan) if of_deployments is None else of_deployments
        right = np.full(intervals, np.nan) if of_gateway is None else of_gateway
        return np.concatenate([left, right[:, None]], axis=1).ravel().astype(np.float64)

    measured, gateway, grants = played.measured, played.gateway, played.grants
    latency = jnp.moveaxis(jnp.asarray(gateway.latency), 1, 0)
    change = jax.tree.map(lambda leaf: np.diff(leaf, axis=0, prepend=leaf[:1]), grants)
    numbers = {
        "cpu_cores": column(grants.cpu_cores, None),
        "memory_gib": column(grants.memory_gib, None),
        "num_replicas": column(grants.replicas, None),
        "ready_replicas": column(measured.ready, None),
        "cpu_cores_used": column(measured.cpu_cores_used, None),
        "memory_gib_used": column(measured.memory_gib_used, None),
        "request_rate_per_s": column(measured.rate_per_s, gateway.rate_per_s),
        "response_s": column(measured.response_s, gateway.response_s),
        "response_p95_s": column(None, np.asarray(quantile_s(latency, 0.95))),
        "response_p99_s": column(None, np.asarray(quantile_s(latency, 0.99))),
        "num_failures": np.round(column(measured.num_failures, gateway.num_failures)),
        "action_cpu_cores": column(change.cpu_cores, None),
        "action_memory_gib": column(change.memory_gib, None),
        "action_replicas": column(change.replicas, None),
    }
    count = intervals * len(names)
    whole = {"num_replicas", "num_failures", "action_replicas"}
    return pa.table(
        {
            "time": pa.array(np.repeat(time_us, len(names)), pa.int64()).cast(INSTANT),
            "interval_s": np.full(count, config.interval_s),
            "deployment": pa.array(names * intervals, pa.string()).dictionary_encode(),
            **{
                name: pa.array(
                    np.where(np.isnan(values), 0, values).astype(np.int32), pa.int32(), mask=np.isnan(values)
                )
                if name in whole
                else pa.array(values, mask=np.isnan(values))
                for name, values in numbers.items()
            },
        }
    )
