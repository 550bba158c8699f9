"""The certificate of an application's twin: held-out days, simulated again with the grants that they had.

Load comes from outside, and grants are what the log says, so the twin has to say how fast the application answered and
what it used. Members play side by side; every line is a share of what was measured, with an interval over days. Where
fewer days are held out than an interval needs, the last days of training are held out too, one after the other, each
from a twin of the days before it (rolling origin): blocks of a day would give intervals that miss how days differ.
"""

import datetime as dt
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.certify.certificate import Certificate, certificate_of
from evaluation.certify.config import CertifyConfig
from evaluation.certify.lines import about_zero
from evaluation.comparison.bootstrap import Statistic, ratio_over_units
from evaluation.jobs.unfinished import NOTHING_KEPT, Unfinished
from logs_schema import Archive
from logs_schema.errors import ArchiveError, ConfigError
from offline_rl.rules.autoscaling.autoscaler import Autoscaler, Played, follow, free_config, free_limits
from offline_rl.rules.autoscaling.logged import logged_grants
from twin.autoscaling.answers import twin_response
from twin.autoscaling.config import AutoscalingConfig
from twin.autoscaling.fit import fit_application
from twin.autoscaling.fitting import rho_of
from twin.autoscaling.persistence import ApplicationTwin
from twin.autoscaling.rewards import cost_under_slo, violation
from twin.autoscaling.scaling_log import DAY_S, ScalingLog, read_scaling_log, without_gaps
from twin.autoscaling.state import ScalingState
from twin.autoscaling.types import Grants, quantile_s
from twin.contracts import Array

ABOUT = {
    "answers": "What users saw on held-out days under the grants of the log, in the twin over the log, less one.",
    "use": "Cores in use on held-out days, in the twin over the log, less one, by deployment.",
    "coverage": "Share of held-out intervals whose load or grants lie beyond those of the training days.",
}


MOST_NAMED = 3
"""Deployments that a note names."""


class ReplayedDays(NamedTuple):
    """Held-out intervals in the twin, means over members; leaves [intervals, ...]."""

    mean_s: np.ndarray
    p95_s: np.ndarray
    p99_s: np.ndarray
    cores_used: np.ndarray  # [intervals, deployments], in all replicas


def as_logged(grants: Grants) -> Autoscaler:
    """The logged behaviour: grants [intervals, deployments], one after the other."""
    length = grants.replicas.shape[0]

    def decide(_key: Array, memory: Array, state: ScalingState) -> tuple[Array, Grants]:
        now = jax.tree.map(lambda leaf: leaf[jnp.minimum(memory, length - 1)], grants)
        like = state.grants.replicas
        return memory + 1, Grants(*(jnp.broadcast_to(leaf[:, None], like.shape) for leaf in now))

    return Autoscaler(lambda _grants: jnp.int32(0), decide)


def simulated_again(twin: ApplicationTwin, log: ScalingLog) -> ReplayedDays:
    """The intervals of a log in the twin, under the grants of the log."""
    members = np.asarray(twin.laws.work_s).shape[0]
    asked = without_gaps(log.gateway["request_rate_per_s"][:, None])[:, 0]
    number, length = len(twin.deployments), len(asked)
    grants = logged_grants(log, np.full(number, 1e3))  # memory that is not logged is enough
    free = free_limits(number)
    config = AutoscalingConfig(interval_s=twin.interval_s, window=2)
    first = jax.tree.map(lambda leaf: leaf[0], grants)
    rates = np.concatenate([asked[:1], asked])  # the first interval is the one before
    starts = np.zeros(members, int)
    response = twin_response(twin.laws, free_config(config), free, rates, length, first, starts=starts)

    @jax.jit
    def play(key: Array) -> Played:
        return follow(key, response, config, free, as_logged(grants), cost_under_slo(), length, (members,))

    played = play(jax.random.key(0))
    latency = jnp.moveaxis(played.gateway.latency, 1, 0)
    used = played.measured.cpu_cores_used * played.measured.ready
    return ReplayedDays(
        np.asarray(played.gateway.response_s).mean(axis=-1),
        np.asarray(quantile_s(latency, 0.95)).mean(axis=-1),
        np.asarray(quantile_s(latency, 0.99)).mean(axis=-1),
        np.asarray(used).mean(axis=-1),
    )


def value_off_by(twin: ApplicationTwin, log: ScalingLog, scaling: AutoscalingConfig) -> float:
    """What the twin's value of the logged grants differs from the log's by, in cores: grants cost the same in both, so
    it is the mean price of violations that differs, over intervals that are not censored. 0 of a log without 95 %
    quantiles."""
    logged_s, mine_s = log.gateway["response_p95_s"], simulated_again(twin, log).p95_s
    usable = ~log.censored & np.isfinite(logged_s)
    if not usable.any():
        return 0.0
    mine, logged = (np.asarray(violation(one[usable], scaling.slo_s)) for one in (mine_s, logged_s))
    return float(scaling.violation_cores * abs(np.mean(mine - logged)))


def certify(
    twin: ApplicationTwin,
    archive: Archive,
    train_days: Sequence[dt.date],
    days: Sequence[dt.date],
    config: CertifyConfig,
    twin_hash: str,
    keep: Unfinished = NOTHING_KEPT,
) -> Certificate:
    """Holds a twin against held-out days; every day of training that is held out too is a unit of `keep`.

    Raises:
        ConfigError: There are no held-out days.
    """
    if not days:
        raise ConfigError(
            "there is no day after the training days to hold the twin against",
            where=str(archive.path),
            allowed="one day or more with deployment_samples",
            advice="give a longer log or that of another autoscaler, or fit on fewer days",
        )
    least, limit = config.intervals().min_units, config.thresholds.run_bias_by_node
    ordered = sorted(train_days)
    rolled = range(max(1, len(ordered) - max(least - len(days), 0)), len(ordered))

    def rolled_to(place: int) -> _Held:
        found = _held_after(archive, ordered[:place], ordered[place], twin.deployments)
        return jax.tree.map(lambda leaf: leaf[:0], own) if found is None else found

    log = read_scaling_log(archive, days, twin.deployments)
    own = keep.tree("own", partial(_held, twin, log), _nothing_held)
    parts = [keep.tree(f"{ordered[place]}", partial(rolled_to, place), _nothing_held) for place in rolled]
    earlier = [part for part in parts if len(part.usable)]
    found = jax.tree.map(lambda *leaves: np.concatenate(leaves), own, *earlier)
    part = np.repeat(np.arange(1 + len(earlier)), [len(one.usable) for one in (own, *earlier)])
    day = np.unique(np.stack([part, found.day]), axis=1, return_inverse=True)[1]
    num_days = int(day.max()) + 1
    over = partial(_ratio, day)
    measured = {
        "mean response": (found.twin.mean_s, found.mean_s),
        "95 % quantile of the response": (found.twin.p95_s, found.p95_s),
    }
    lines = [
        about_zero("answers", f"{name}, off by", "share", over(mine, logged, found.usable), num_days, limit,
                   config.intervals(), deciding=True)
        for name, (mine, logged) in measured.items() if np.isfinite(logged).any()
    ]  # fmt: skip
    lines += [
        about_zero(
            "use",
            f"cores of {name}, off by",
            "share",
            over(found.twin.cores_used[:, one], found.cores_used[:, one], found.usable),
            num_days,
            limit,
            config.intervals(),
        )
        for one, name in enumerate(twin.deployments)
    ]
    own_day = np.unique(own.day, return_inverse=True)[1]
    beyond = np.any(own.beyond, axis=1).astype(float)
    lines.append(
        about_zero("coverage", "intervals beyond the training days", "share",
                   _ratio(own_day, 1.0 + beyond, np.ones(len(beyond)), np.ones(len(beyond), bool)),
                   int(own_day.max()) + 1, config.thresholds.coverage, config.intervals(), one_sided=True)
    )  # fmt: skip
    notes = [_days_in_words(num_days, len(earlier), least)]
    notes += [
        f"{np.mean(~own.usable):.1%} of the held-out intervals were short of capacity and are left out."
    ]
    notes += beyond_in_words(twin, own.beyond)
    return certificate_of(
        lines, ABOUT, {}, config, twin=twin_hash, archive=archive.content_hash, train_days=train_days, days=days,
        num_requests=int(np.nansum(own.requests)), notes=notes,
    )  # fmt: skip


class _Held(NamedTuple):
    """Held-out intervals beside what a twin says of them; leaves [intervals, ...]."""

    twin: ReplayedDays
    mean_s: np.ndarray
    p95_s: np.ndarray
    cores_used: np.ndarray  # [intervals, deployments], in all replicas
    usable: np.ndarray
    beyond: np.ndarray  # [intervals, deployments]
    day: np.ndarray  # since the first day of the log that was read
    requests: np.ndarray


def _nothing_held() -> _Held:
    """The form of what is held out."""
    return _Held._make([ReplayedDays._make(ReplayedDays._fields), *_Held._fields[1:]])


def _held(twin: ApplicationTwin, log: ScalingLog) -> _Held:
    used = log.columns["cpu_cores_used"] * log.columns["ready_replicas"]
    return _Held(
        simulated_again(twin, log),
        log.gateway["response_s"],
        log.gateway["response_p95_s"],
        used,
        ~log.censored,
        beyond_training(twin, log),
        log.time_s // DAY_S,
        log.gateway["request_rate_per_s"] * log.interval_s,
    )


def _days_in_words(num_days: int, rolled: int, least: int) -> str:
    words = f"Intervals are over {num_days} held-out {'day' if num_days == 1 else 'days'}"
    if rolled:
        words += f", {rolled} of them days of training, {'' if rolled == 1 else 'each '}from a twin of the days before"
    if num_days < least:
        words += (
            f"; {least} are needed: log more, or fit on fewer days ([days] last_day) where there are more"
        )
    return f"{words}."


def _held_after(
    archive: Archive, before: Sequence[dt.date], day: dt.date, deployments: Sequence[str]
) -> _Held | None:
    """A day of training beside a twin of the days before it; None where these make none."""
    try:
        twin = fit_application(read_scaling_log(archive, before, deployments))
        return _held(twin, read_scaling_log(archive, [day], deployments))
    except (ArchiveError, ConfigError):
        return None


def beyond_training(twin: ApplicationTwin, log: ScalingLog) -> np.ndarray:
    """[intervals, deployments] bool: loaded or granted beyond the training days."""
    laws, seen = twin.laws, twin.coverage
    rho = rho_of(log, np.asarray(laws.work_s).mean(axis=0), np.asarray(laws.most_cores).mean(axis=0))
    cores, replicas = log.columns["cpu_cores"], log.columns["num_replicas"]
    with np.errstate(invalid="ignore"):
        outside = (rho > seen.most_rho * 1.02) | (cores > seen.most_cores) | (cores < seen.least_cores)
        found: np.ndarray = outside | (replicas > seen.most_replicas)
    return found


def beyond_in_words(twin: ApplicationTwin, beyond: np.ndarray) -> list[str]:
    """A note that names the deployments that went farthest beyond the training days; none where none did."""
    shares = beyond.mean(axis=0)
    worst = [int(one) for one in np.argsort(-shares, kind="stable")[:MOST_NAMED] if shares[one] > 0.0]
    if not worst:
        return []
    seen = twin.coverage
    named = ", ".join(
        f"{twin.deployments[one]} in {shares[one]:.0%} of the intervals (training days: {seen.least_cores[one]:g} "
        f"to {seen.most_cores[one]:g} cores, at most {seen.most_replicas[one]:g} replicas)"
        for one in worst
    )
    return [f"Loaded or granted beyond the training days, where the twin answers with pessimism: {named}."]


def _ratio(day: np.ndarray, mine: np.ndarray, logged: np.ndarray, usable: np.ndarray) -> Statistic:
    """Sum over sum, less one, as a function of the days' weights."""
    where = usable & np.isfinite(mine) & np.isfinite(logged)
    ratio = ratio_over_units(*(np.bincount(day, np.where(where, one, 0.0)) for one in (mine, logged)))
    return lambda weights: ratio(weights) - 1.0
