"""Why an autoscaler's metrics are not to be decided by: what is missing, unlike training, or cannot be."""

import math

import numpy as np

from offline_rl.runner.scaling import POD_RULE, DeploymentSetting, Granted, Reading, ScalingSetting, failing

BEYOND = 1.2
"""Rates above so many times the largest of the log are not like training."""
SLACK = 0.01
"""Cores and GiB by which the size of a replica may differ from what the log has seen: quantities are rounded."""
OF_ANOTHER_UNIT = 20.0
"""Cores used that are so many times those of a replica, or as small a part of what the load takes by the log, are of
another unit, or not of all processes."""
LEAST_WORK = 0.05
"""Share of the cores granted below which the load says nothing of their use, and share of a deployment's largest rate
below which nothing needs to be used."""
MOST_MEMORY, MOST_SLO = 50.0, math.exp(4.0)
"""Memory in use over that of a replica, and response times over the objective, that no policy tells apart."""


def odd_use(setting: ScalingSetting, granted: Granted, now: Reading) -> list[str]:
    """Why the use of processors cannot be what it says, by deployment: neither policy nor rules can decide by it."""
    with np.errstate(invalid="ignore"):
        used = now.cpu_cores_used * np.maximum(now.ready, 1.0)
        work = setting.limit("core_s_per_request") * now.gateway_rate_per_s
        idle = now.rate_per_s < LEAST_WORK * setting.limit("most_rate_per_s")
        takes = work > LEAST_WORK * granted.cpu_cores * granted.replicas
        much = now.cpu_cores_used > OF_ANOTHER_UNIT * granted.cpu_cores
        # Then it is short
        little = (used * OF_ANOTHER_UNIT < work) & takes & ~idle & (failing(setting, now) <= 0.0)
    asks = "is the unit right that the mapping names, and is it of all pods?"
    return [
        f"{now.cpu_cores_used[place]:.3g} cores used by a replica of {granted.cpu_cores[place]:.3g}: {asks}"
        if high
        else f"{used[place]:.2g} cores used, and the load takes {work[place]:.2g} by the log: {asks}"
        if low
        else ""
        for place, (high, low) in enumerate(zip(much.tolist(), little.tolist(), strict=True))
    ]


def unlike_training(
    setting: ScalingSetting, place: int, granted: Granted, now: Reading, before: Reading
) -> str:
    """Why the policy cannot decide for a deployment, in words; empty where it can."""
    one = setting.deployments[place]
    if setting.form == POD_RULE:
        off = granted.replicas[place] <= 0.0
        used = now.cpu_cores_used, now.ready, granted.cpu_cores
        known = all(np.isfinite(values[place]) for values in used)
        return "switched off" if off else "" if known else "the use of processors is not known"
    if missing := _missing(place, now, before):
        return f"metrics of the deployment are missing: {missing}"
    size = granted.cpu_cores[place], memory_seen(setting, granted)[place]
    if not np.all(np.isfinite(size)):
        return "the cores or the memory of its replicas are not known"
    if missing := _missing_of_users(now, before):
        return f"what users see is not known: {missing}"
    return _beyond(setting, one, place, granted, now, size)


def _missing(place: int, now: Reading, before: Reading) -> str:
    """Columns of a deployment that are not known, now or then."""
    needed = {
        "request_rate_per_s": (now.rate_per_s, before.rate_per_s),
        "cpu_cores_used": (now.cpu_cores_used, before.cpu_cores_used),
        "memory_gib_used": (now.memory_gib_used,),
        "ready_replicas": (now.ready, before.ready),
        "response_s": (now.response_s,),
        "num_failures": (now.num_failures,),
    }
    return ", ".join(
        name if not math.isfinite(values[0][place]) else f"{name} of before"
        for name, values in needed.items()
        if not all(math.isfinite(one[place]) for one in values)
    )


def _missing_of_users(now: Reading, before: Reading) -> str:
    needed = {
        "request_rate_per_s": now.gateway_rate_per_s,
        "response_p95_s": now.gateway_quantile_s,
        "num_failures": now.gateway_failures,
        "request_rate_per_s of before": before.gateway_rate_per_s,
    }
    return ", ".join(name for name, value in needed.items() if not math.isfinite(value))


def _beyond(
    setting: ScalingSetting,
    one: DeploymentSetting,
    place: int,
    granted: Granted,
    now: Reading,
    size: tuple[float, float],
) -> str:
    """What lies where no training has been."""
    if now.rate_per_s[place] > BEYOND * one.most_rate_per_s:
        return f"{now.rate_per_s[place]:.3g} calls a second, the log has seen {one.most_rate_per_s:.3g}"
    if not one.min_replicas <= granted.replicas[place] <= one.max_replicas:
        return f"{granted.replicas[place]:g} replicas, training had {one.min_replicas} to {one.max_replicas}"
    bounds = (one.min_cpu_cores, one.max_cpu_cores), (one.min_memory_gib, one.max_memory_gib)
    for has, (least, most), unit in zip(size, bounds, ("cores", "GiB"), strict=True):
        if not least - SLACK <= has <= most + SLACK:
            return f"replicas of {has:g} {unit}, training had {least:g} to {most:g}"
    if now.memory_gib_used[place] > MOST_MEMORY * size[1]:
        return f"{now.memory_gib_used[place]:.3g} GiB used by a replica of {size[1]:.3g}: is it in the mapping's unit?"
    for what, time_s in (("a call", now.response_s[place]), ("a request", now.gateway_quantile_s)):
        if time_s > MOST_SLO * setting.slo_s:
            return (
                f"{time_s:.3g} s {what}, the objective is {setting.slo_s:.3g}: is it in the mapping's unit?"
            )
    return ""


def has_room(setting: ScalingSetting) -> np.ndarray:
    """[deployments] bool: the log changed the memory of replicas."""
    found: np.ndarray = setting.limit("min_memory_gib") < setting.limit("max_memory_gib")
    return found


def memory_seen(setting: ScalingSetting, granted: Granted) -> np.ndarray:
    """[deployments] the memory of a replica that a policy reckons with: that of the log where it was never changed or
    never named, for no policy has learned what another one means."""
    return np.where(has_room(setting), granted.memory_gib, setting.limit("min_memory_gib"))
