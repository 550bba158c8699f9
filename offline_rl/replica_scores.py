"""The rule of slot mode (`offline_rl.rules.on_time_by_replicas` has its equations) on arrays of NumPy or of JAX: one
formula for training and for bundles, whose runner has no JAX."""

from collections.abc import Callable, Mapping
from typing import Any

TINY = 1e-6


def replica_scores(
    xp: Any,
    normal_cdf: Callable[[Any], Any],
    numbers: Mapping[str, Any],
    seen: Mapping[str, Any],
    of_request: Mapping[str, Any],
) -> Any:
    """Scores of nodes, at most 1.

    Args:
        xp: `numpy` or `jax.numpy`.
        normal_cdf: Its normal distribution function.
        numbers: `latency` [3], `spread`, `price`, `haste`.
        seen: Feature -> its values for every node, as observed.
        of_request: `deadline`, `has_deadline` and `waited`, which broadcast to those.
    """

    def amount(feature: Any) -> Any:
        return xp.maximum(xp.expm1(feature), 0.0)

    run, backlog, core_time, replicas, same = (
        amount(seen[name]) for name in ("usual_run", "backlog", "core_time", "replicas", "same_service")
    )
    away = xp.where(seen["is_cloud"] > 0.5, numbers["latency"][2], numbers["latency"][1])
    latency = xp.where(seen["same_site"] > 0.5, numbers["latency"][0], away)
    has_core = seen["free_cpu_cores"] - amount(seen["waiting_share"]) >= seen["needed_share"] - 1e-3
    for_replica = run * xp.maximum(same - replicas + 1.0, 0.0) / xp.maximum(replicas, 1e-3)
    wait = xp.maximum(xp.where(has_core, 0.0, backlog), for_replica)
    left = amount(of_request["deadline"]) - amount(of_request["waited"]) - wait - 2.0 * latency
    on_time = share_on_time(xp, normal_cdf, left, run, numbers["spread"])
    on_time = xp.where(of_request["has_deadline"] > 0.5, on_time, 1.0)
    cost = numbers["price"] * xp.log1p(core_time) * (2.0 - seen["free_cpu_cores"])
    return on_time - cost - numbers["haste"] * xp.log1p(wait + run + latency)


def share_on_time(xp: Any, normal_cdf: Callable[[Any], Any], left: Any, run: Any, spread: Any) -> Any:
    """The probability that a run ends in the time that is left."""
    share = xp.maximum(left, TINY) / xp.maximum(run, TINY)
    return xp.where(left > 0.0, normal_cdf(xp.log(share) / spread), 0.0)
