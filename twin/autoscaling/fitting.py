"""Learns the laws of an application from its log: several members, each from hours drawn with replacement.

What can be read off is read off: calls per request, work per call and start-up times are ratios of sums, memory is a
straight line, the weights from end to end, of the mean and of the 95 % quantile, are non-negative regressions held near
the calls per request, and what cold replicas cost is a regression on those that started lately. The law of the own time
is fitted by gradient descent, for all deployments and members at once, on intervals that are not censored.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from logs_schema.calendar import HOUR_S
from logs_schema.errors import ConfigError
from twin.autoscaling.laws import MOST_RHO, Laws, law_s, tail_features
from twin.autoscaling.scaling_log import P95_OF_EXPONENTIAL, ScalingLog
from twin.contracts import Array
from twin.descent import descend

WHOLE_CORE = 1.0
"""Cores that a replica can use even where the log granted less: a call runs on one core at a time."""
USUAL_POWER = -1.5
"""Of `Laws.log_power`, where a log says little: near 1 / (1 - rho), the law of processors that are shared."""
COLD_S = (30.0, 60.0, 120.0, 300.0)
"""Times that are tried in which what a call takes more in a young replica falls by a factor of e."""
LEAST_STARTS, SURELY, LEAST_COLD = 10, 5.0, 0.1
"""Starts that a log needs to show cold ones; standard errors above zero, and share of work, from which they count."""
LARGEST_SHARE = 0.99
"""Scatter beyond this quantile counts as the quantile: single bursts of calls that wait are no scatter."""
MARGIN_SHARE = 0.99
"""Share of the intervals whose use of memory stays within the margin above the line."""


@dataclass(frozen=True)
class LawsConfig:
    """How laws are fitted.

    Attributes:
        members: Of the ensemble.
        rows: Intervals that a member's law is fitted on, at most.
        updates: Steps of gradient descent.
        learning_rate: Of Adam.
        seed: Of the hours drawn.
    """

    members: int = 5
    rows: int = 1500
    updates: int = 500
    learning_rate: float = 0.03
    seed: int = 0


class ScalingCoverage(NamedTuple):
    """Where a log has been; leaves [deployments]."""

    least_cores: np.ndarray
    most_cores: np.ndarray
    most_replicas: np.ndarray
    most_rho: np.ndarray
    most_rate_per_s: np.ndarray


def fit_laws(log: ScalingLog, config: LawsConfig | None = None) -> Laws:
    """The laws of a log, leaves [members, deployments] NumPy.

    Raises:
        ConfigError: Fewer than 50 intervals are not censored.
    """
    config = config or LawsConfig()
    usable = np.flatnonzero(~log.censored & np.isfinite(log.gateway["response_s"]))
    if len(usable) < 50:
        raise ConfigError(
            f"{len(usable)} intervals show how the application answers within its capacity",
            where="deployment_samples",
            allowed="50 or more with the gateway's rate and response time, few failures, use below cpu_cores",
            advice="give more days, or mend the units of the log: `schedtwin check` says where use exceeds the grant",
        )
    random = np.random.default_rng(config.seed)
    draws = [_hours_drawn(log, usable, random) for _ in range(config.members)]
    parts = [_read_off(log, rows) for rows in draws]
    rows = np.stack([random.choice(rows, config.rows) for rows in draws])
    fitted, spread = _fit_own_times(log, parts, rows, config)
    members, common = [], cold_starts(log) | scatter(log)
    for member, part in enumerate(parts):
        own = {name: fitted[name][member] for name in fitted}
        weights = _end_to_end(log, part, draws[member])
        laws: dict[str, Any] = {**part, **own, "spread": spread[member], **weights, **common}
        members.append(Laws(**laws))
    return jax.tree.map(lambda *leaves: np.stack(leaves).astype(np.float32), *members)


def coverage_of(log: ScalingLog, laws: Laws) -> ScalingCoverage:
    """Where the log has been."""
    work_s = np.asarray(laws.work_s).mean(axis=0)
    rho = rho_of(log, work_s, np.asarray(laws.most_cores).mean(axis=0))
    most = [
        np.nanmax(log.columns[name], axis=0) for name in ("cpu_cores", "num_replicas", "request_rate_per_s")
    ]
    least = np.nanmin(log.columns["cpu_cores"], axis=0)
    return ScalingCoverage(least, most[0], most[1], np.nanquantile(rho, 0.999, axis=0), most[2])


def rho_of(log: ScalingLog, work_s: np.ndarray, most_cores: np.ndarray) -> np.ndarray:
    """[intervals, deployments] load as a share of the capacity of the replicas that were ready."""
    cores = np.minimum(log.columns["cpu_cores"], most_cores)
    capacity = np.maximum(log.columns["ready_replicas"], 0.25) * cores
    return log.columns["request_rate_per_s"] * work_s / capacity


def cold_starts(log: ScalingLog) -> dict[str, np.ndarray]:
    """How much more work a call takes in a replica that has just started (`cold_work`, as a share) and how that goes by
    (`cold_s`); leaves [deployments], 0 where the log has few starts or does not show it beyond chance.

    The work of a call is held against the share of replicas that are young, whole intervals after they became ready: in
    the interval itself the mean number of ready replicas says too little.
    """
    from scipy.signal import lfilter

    ready, rate = log.columns["ready_replicas"], log.columns["request_rate_per_s"]
    with np.errstate(invalid="ignore", divide="ignore"):
        work = log.columns["cpu_cores_used"] * ready / rate
    new = np.nan_to_num(np.maximum(np.diff(ready, axis=0, prepend=ready[:1]), 0.0))
    usable = ~log.censored[:, None] & np.isfinite(work) & (new <= 0.0) & (ready > 0.0)
    cold_work, cold_s = np.zeros(ready.shape[1]), np.full(ready.shape[1], COLD_S[0])
    for one in range(ready.shape[1]):
        rows = usable[:, one]
        if np.sum(new[:, one] > 0.0) < LEAST_STARTS or rows.sum() < LEAST_STARTS:
            continue
        y = work[rows, one] / np.mean(work[rows, one]) - 1.0
        best = np.sum((y - y.mean()) ** 2)
        for fades_s in COLD_S:
            kept = np.exp(-log.interval_s / fades_s)
            young = lfilter([0.0, kept], [1.0, -kept], new[:, one])[rows] / ready[rows, one]
            x = np.clip(young, 0.0, 1.0) - np.clip(young, 0.0, 1.0).mean()
            slope = float(x @ y / max(x @ x, 1e-9))
            left = float(np.sum((y - y.mean() - slope * x) ** 2))
            surely = slope > SURELY * np.sqrt(left / max(len(y) - 2, 1) / max(x @ x, 1e-9))
            if left < best and surely and slope > LEAST_COLD:
                best, cold_work[one], cold_s[one] = left, slope, fades_s
    return {"cold_work": cold_work, "cold_s": cold_s}


def scatter(log: ScalingLog) -> dict[str, np.ndarray]:
    """How calls, and the work of a call, scatter from interval to interval; leaves [deployments].

    Of calls that come and work independently, the relative variance of their number (`rate_scatter`), and of their work
    (`work_scatter`), is so much over the number that is expected: 1 of a Poisson process of its own, less of calls that
    most requests make. Differences of consecutive intervals tell scatter from drift; the largest count as the
    `LARGEST_SHARE` quantile does.
    """
    column = log.columns
    calls = column["request_rate_per_s"] * log.interval_s
    asked = np.broadcast_to(log.gateway["request_rate_per_s"][:, None] * log.interval_s, calls.shape)
    used = column["cpu_cores_used"] * column["ready_replicas"]
    usable = ~log.censored[:, None]

    def over_number(value: np.ndarray, cause: np.ndarray, number: np.ndarray) -> np.ndarray:
        known = usable & np.isfinite(value) & np.isfinite(cause) & (number > 0.0)
        value, cause = (np.where(known, one, np.nan) for one in (value, cause))
        with np.errstate(invalid="ignore", divide="ignore"):
            away = value / cause * (np.nansum(cause, axis=0) / np.nansum(value, axis=0))
            square = np.diff(away, axis=0) ** 2 / (1.0 / number[1:] + 1.0 / number[:-1])
        found = np.zeros(calls.shape[1])
        for one in range(len(found)):
            mine = square[np.isfinite(square[:, one]), one]
            if len(mine):
                found[one] = np.mean(np.minimum(mine, np.quantile(mine, LARGEST_SHARE)))
        return found

    with np.errstate(invalid="ignore"):
        expected = (
            asked * np.nansum(calls, axis=0) / np.nansum(np.where(np.isfinite(calls), asked, 0.0), axis=0)
        )
    return {
        "rate_scatter": over_number(calls, asked, expected),
        "work_scatter": over_number(used, calls, calls),
    }


def calls_held(log: ScalingLog) -> np.ndarray:
    """[intervals, deployments] calls in a replica, by Little's law of those that were not refused."""
    column = log.columns
    refused_per_s = np.nan_to_num(column["num_failures"], nan=0.0) / log.interval_s
    served_per_s = np.maximum(column["request_rate_per_s"] - refused_per_s, 0.0)
    found: np.ndarray = served_per_s * column["response_s"] / np.maximum(column["ready_replicas"], 0.25)
    return found


def _hours_drawn(log: ScalingLog, usable: np.ndarray, random: np.random.Generator) -> np.ndarray:
    hour = (log.time_s[usable] // HOUR_S).astype(int)
    hours = np.unique(hour)
    drawn = random.choice(hours, len(hours))
    return np.concatenate([usable[hour == one] for one in drawn])


def _summed(one: np.ndarray, other: np.ndarray) -> list[np.ndarray]:
    """Sums over the rows in which both are known: a gap in one takes the row out of both."""
    known = np.isfinite(one) & np.isfinite(other)
    return [np.sum(np.where(known, values, 0.0), axis=0) for values in (one, other)]


def _read_off(log: ScalingLog, rows: np.ndarray) -> dict[str, np.ndarray]:
    """What ratios and straight lines say."""
    column = {name: values[rows] for name, values in log.columns.items()}
    rate, ready = column["request_rate_per_s"], column["ready_replicas"]
    asked = log.gateway["request_rate_per_s"][rows, None]
    called, sent = _summed(rate, asked)
    in_use, served = _summed(column["cpu_cores_used"] * ready, rate)
    calls, work = called / sent, in_use / np.maximum(served, 1e-9)
    every = log.columns
    late = np.maximum(every["num_replicas"] - every["ready_replicas"], 0.0) * log.interval_s
    more = np.maximum(np.diff(every["num_replicas"], axis=0, prepend=every["num_replicas"][:1]), 0.0)
    count = [np.maximum(np.isfinite(one).sum(axis=0), 1) for one in (late, more)]  # gaps differ, so means
    start_up = np.nansum(late, axis=0) / np.maximum(np.nansum(more, axis=0), 1.0) * count[1] / count[0]
    number = calls_held(log)
    connections = np.maximum(np.nanmax(number, axis=0), 5.0)
    lines = [_line(number[rows, one], column["memory_gib_used"][:, one]) for one in range(len(calls))]
    memory = [
        _seen(*line, used, most)
        for line, used, most in zip(lines, every["memory_gib_used"].T, connections, strict=True)
    ]
    margin = [_margin(log, number[:, one], one, *line) for one, line in enumerate(memory)]
    return {
        "calls_per_request": calls,
        "work_s": work,
        "most_cores": np.maximum(np.nanmax(every["cpu_cores"], axis=0), WHOLE_CORE),
        "start_up_s": np.clip(start_up, 0.0, 600.0),
        "connections": connections,
        "memory_gib": np.array([line[0] for line in memory]),
        "memory_per_call_gib": np.array([line[1] for line in memory]),
        "memory_margin_gib": np.array(margin),
    }


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Intercept and slope >= 0 of a straight line, by least squares over the pairs that are known."""
    known = np.isfinite(x) & np.isfinite(y)
    if known.sum() < 10:
        return 0.0, 0.0
    slope = max(float(np.cov(x[known], y[known], ddof=0)[0, 1] / max(np.var(x[known]), 1e-12)), 0.0)
    return float(np.mean(y[known]) - slope * np.mean(x[known])), slope


def _seen(alone_gib: float, call_gib: float, used_gib: np.ndarray, connections: float) -> tuple[float, float]:
    """The line, where a replica holds as many calls as it ever did, no higher than the most that a log has used: with a
    little more than is granted, a twin's replicas would restart after every burst and never come back."""
    known = used_gib[np.isfinite(used_gib)]
    if not len(known):
        return alone_gib, call_gib
    return alone_gib, min(call_gib, max(float(known.max()) - alone_gib, 0.0) / connections)


def _margin(log: ScalingLog, number: np.ndarray, deployment: int, alone_gib: float, call_gib: float) -> float:
    """Memory beyond the line that a replica needs: what is used above it in one of a hundred intervals, no more than
    the log had to spare while all went well (where memory holds caches, use says nothing of need)."""
    well, line = ~log.censored, alone_gib + call_gib * number
    above, spare = (
        (values[:, deployment] - line)[well & np.isfinite(values[:, deployment] - line)]
        for values in (log.columns["memory_gib_used"], log.memory_granted)
    )
    wanted = max(float(np.quantile(above, MARGIN_SHARE)), 0.0) if len(above) else 0.0
    return min(wanted, float(np.min(spare))) if len(spare) else wanted


def _fit_own_times(
    log: ScalingLog, parts: list[dict[str, np.ndarray]], rows: np.ndarray, config: LawsConfig
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Parameters of `law_s`, and deviations around it; leaves [members, deployments]."""
    rho = np.stack(
        [rho_of(log, part["work_s"], part["most_cores"])[one] for part, one in zip(parts, rows, strict=True)]
    )
    cores = np.stack(
        [
            np.minimum(log.columns["cpu_cores"][one], part["most_cores"])
            for part, one in zip(parts, rows, strict=True)
        ]
    )
    response = log.columns["response_s"][rows]
    known = np.isfinite(rho) & np.isfinite(response) & (response > 0.0) & (rho < MOST_RHO)
    weight = jnp.asarray(known, jnp.float32)
    log_s = jnp.asarray(np.log(np.where(known, response, 1.0)), jnp.float32)
    rho_j, cores_j = (jnp.asarray(np.where(known, one, 0.5), jnp.float32) for one in (rho, cores))
    work = jnp.asarray(np.stack([part["work_s"] for part in parts]), jnp.float32)
    most = np.clip(np.nanmax(log.columns["cpu_cores"], axis=0), 0.05, WHOLE_CORE)
    seen = jnp.asarray(np.broadcast_to(most, work.shape), jnp.float32)
    start = {
        "log_floor": jnp.log(jnp.maximum(work, 1e-6)),
        "gamma": jnp.full(work.shape, 0.8),
        "log_beta": jnp.zeros(work.shape),
        "log_power": jnp.full(work.shape, USUAL_POWER),
    }

    def away(params: dict[str, Array]) -> Array:
        floor, gamma, beta, power = (params[name][:, None] for name in start)
        law = law_s(floor, gamma, beta, power, rho_j, cores_j)
        return jnp.log(law) - log_s

    def too_quick(params: dict[str, Array]) -> Array:
        """By how much the law at a whole core lies below what the processor time saved allows; logarithms."""
        unloaded = jnp.exp(params["log_floor"]) / seen ** params["gamma"]
        least = jnp.maximum(unloaded - work * (1.0 / seen - 1.0), jnp.minimum(work, unloaded))
        return jnp.maximum(jnp.log(jnp.maximum(least, 1e-9)) - params["log_floor"], 0.0)

    def loss(params: dict[str, Array]) -> Array:
        held = sum(jnp.sum((params[name] - start[name]) ** 2) for name in ("gamma", "log_beta", "log_power"))
        missed = jnp.sum(optax.huber_loss(away(params), delta=0.2) * weight) / weight.shape[1]
        return missed + 1e-4 * held + 0.1 * jnp.sum(too_quick(params) ** 2)

    optimizer = optax.adam(config.learning_rate)

    @jax.jit
    def fitted(params: dict[str, Array]) -> tuple[dict[str, Array], Array]:
        def one(_: int, carry: tuple) -> tuple:
            params, memory = carry
            return descend(optimizer, jax.grad(loss)(params), memory, params)

        params, _ = jax.lax.fori_loop(0, config.updates, one, (params, optimizer.init(params)))
        square = jnp.sum(away(params) ** 2 * weight, axis=1) / jnp.maximum(jnp.sum(weight, axis=1), 1.0)
        return params, jnp.sqrt(square)

    params, spread = fitted(start)
    return jax.tree.map(np.asarray, params), np.asarray(spread)


def _end_to_end(log: ScalingLog, part: dict[str, np.ndarray], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Weights of own times in the mean from end to end and in its 95 % quantile, and coefficients of its tail."""
    own, mean_s = log.columns["response_s"][rows], log.gateway["response_s"][rows]
    known = np.isfinite(own).all(axis=1) & np.isfinite(mean_s) & (mean_s > 0.0)
    if known.sum() < 10:
        raise ConfigError(
            f"{known.sum()} intervals have response times of all deployments and of the gateway",
            where="deployment_samples",
            allowed="10 or more",
            advice="leave out deployments that are seldom called",
        )
    own, mean_s, tail_s = own[known], mean_s[known], log.gateway["response_p95_s"][rows][known]
    calls = part["calls_per_request"]
    weight = _weights(own, mean_s, calls)
    has_tail = np.isfinite(tail_s) & (tail_s > 0.0)
    if has_tail.sum() < 10:  # the log has no quantile: that of one exponential time
        tail = np.array([np.log(P95_OF_EXPONENTIAL), *[0.0] * 4])
        return {"weight": weight, "tail_weight": weight, "tail": tail, "tail_spread": np.zeros(1)}
    longer = np.median(tail_s[has_tail] / mean_s[has_tail])
    tail_weight = _weights(own[has_tail], tail_s[has_tail], longer * calls)
    rho = rho_of(log, part["work_s"], part["most_cores"])[rows][known]
    mean_times, tail_times = (jnp.asarray((own * one).T) for one in (weight, tail_weight))
    features = np.asarray(tail_features(mean_times, tail_times, jnp.asarray(rho.T))).T
    usable = has_tail & np.isfinite(features).all(axis=1)
    x, y = features[usable], np.log(tail_s[usable] / mean_s[usable])
    ridge = 1e-3 * len(y) * np.diag([0.0, *[1.0] * (x.shape[1] - 1)])
    tail = np.linalg.solve(x.T @ x + ridge, x.T @ y)
    spread = np.std(y - x @ tail, keepdims=True)
    return {"weight": weight, "tail_weight": tail_weight, "tail": tail, "tail_spread": spread}


def _weights(own: np.ndarray, target_s: np.ndarray, usual: np.ndarray) -> np.ndarray:
    """Weights >= 0 [deployments] whose sum of own times is the target, in proportion; held near the usual ones."""
    from scipy.optimize import nnls

    held = 0.03 * np.sqrt(len(target_s)) * np.diag(own.mean(axis=0) / target_s.mean())
    scaled = np.concatenate([own / target_s[:, None], held])
    found: np.ndarray = nnls(scaled, np.concatenate([np.ones(len(target_s)), held @ usual]))[0]
    return found
