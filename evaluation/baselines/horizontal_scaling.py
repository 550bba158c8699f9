"""Horizontal scaling as in Kubernetes (HPA), per service, once a frame.

    desired = ceil(replicas * metric / target),   metric = load / replicas

unchanged while `metric / target` is within a tolerance of 1; replicas that are not ready yet count as idle when the
rule would add, and what they would turn into a removal is no change; a removal must have been wanted all through the
stabilisation window: the largest of its recommendations counts. At least one replica stays, and a service without
replicas is left alone. Not taken over: scaling policies (a doubling or four replicas in 15 s), which H changes a frame
never reach.

What is wanted, H changes a frame carry out, the services first that lack the largest part of what they should have,
then those that have the largest part too many. A new replica goes where the scheduler's default scoring sends it: to
the node with the largest share of memory left, of those that have fewest replicas of the service. One is removed from
the node with most of them (the order in which a ReplicaSet deletes).

Two metrics: `hpa` follows the share of replicas that are busy, target 0.8 (a replica requests one core and serves one
request, so this is its CPU utilisation; 80 % is the default of autoscaling/v2); `hpa_requests` follows requests at
hand, waiting ones included, for each replica, target 1, as a custom per-pod metric would.

Source: Kubernetes documentation, "Horizontal Pod Autoscaling", algorithm details; pkg/controller/podautoscaler. The
baseline "Native" of KaiS and KMPS.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

import jax
import jax.numpy as jnp

from evaluation.baselines.orchestration_baseline import OrchestrationBaseline
from logs_schema.errors import ConfigError
from twin.contracts import Array
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig, history_frames
from twin.orchestration.frame_state import FrameState, Measured, Scaling, removable, specified
from twin.orchestration.orchestrator import Orchestrate, any_largest, host_score, row_of
from twin.placement.features import one_hot


def busy_replicas(measured: Measured) -> Array:
    """Replicas in service: the metric is their utilisation."""
    return measured.busy


def requests_at_hand(measured: Measured) -> Array:
    """Requests in service, waiting and queued: the metric is requests for each replica."""
    return measured.requests


@dataclass(frozen=True)
class HorizontalScaling:
    """Configuration of the autoscaler.

    Attributes:
        load: Of every service; divided by its replicas it is the metric.
        target: Target of the metric, > 0.
        tolerance: Deviation of `metric / target` from 1 up to which nothing is changed.
        stabilisation_s: Seconds for which a removal must have been recommended.
    """

    load: Callable[[Measured], Array] = busy_replicas
    target: float = 0.8
    tolerance: float = 0.1
    stabilisation_s: float = 300.0


def recommended(load: Array, ready: Array, specified: Array, target: float, tolerance: float) -> Array:
    """Replicas that the rule recommends, before it is stabilised.

    Args:
        load: Metric times replicas; NaN where it was not measured.
        ready: Replicas that can serve.
        specified: Specified replicas.
        target: Target of the metric, > 0.
        tolerance: >= 0.

    Returns:
        The recommendation, same shape; `specified` where nothing is to change or nothing is known.
    """
    adds = load > target * ready
    counted = jnp.where(adds, specified, ready)
    ratio = load / jnp.maximum(target * counted, 1e-9)
    keeps = jnp.isnan(load) | (jnp.abs(ratio - 1.0) <= tolerance) | (adds & (ratio < 1.0)) | (specified < 1)
    wanted = jnp.maximum(jnp.ceil(load / target - 1e-5), 1.0)
    return jnp.where(keeps, specified, wanted)


def stabilised(recommendations: Array, specified: Array) -> Array:
    """The stabilised recommendation: the latest one where it adds, the largest of the window where it removes.

    Args:
        recommendations: [frames, services, *streams], the latest last.
        specified: [services, *streams].
    """
    latest, largest = recommendations[-1], jnp.max(recommendations, axis=0)
    return jnp.where(latest > specified, latest, jnp.minimum(largest, specified))


def horizontal_scaling(rule: HorizontalScaling) -> Callable[[EdgeCloud, FrameConfig], Orchestrate]:
    """The rule for an instance, see the module's description."""

    def make(case: EdgeCloud, config: FrameConfig) -> Orchestrate:
        window = _window(case, config, rule)

        def orchestrate(key: Array, state: FrameState) -> Scaling:
            past, now = jax.tree.map(lambda leaf: leaf[-window:], state.measured), specified(state.deployment)
            advice = recommended(rule.load(past), past.ready, past.specified, rule.target, rule.tolerance)
            return carried_out(case, config, key, state, stabilised(advice, now))

        return orchestrate

    return make


def carried_out(
    case: EdgeCloud, config: FrameConfig, key: Array, state: FrameState, wanted: Array
) -> Scaling:
    """H changes towards the wanted numbers of replicas [services, *streams]."""
    deployment = state.deployment
    num_services = wanted.shape[0]
    has, used_gib = specified(deployment), deployment.used_gib
    free = removable(deployment)
    nodes, changes = [], []
    for key_change in jax.random.split(key, config.num_changes):
        key_service, key_add, key_remove = jax.random.split(key_change, 3)
        gap = (wanted - has) / jnp.maximum(jnp.where(wanted > has, wanted, has), 1.0)
        urgency = jnp.where(gap > 0.0, 1.0 + gap, -gap)
        service, any_ = any_largest(key_service, urgency, wanted != has)
        adds = row_of(wanted, service) > row_of(has, service)
        left, can_host = host_score(case, state, used_gib, service)
        here = row_of(free, service)
        to, has_room = any_largest(key_add, left - 2.0 * row_of(deployment.replicas, service), can_host)
        off, has_one = any_largest(key_remove, here, here > 0.0)
        does = any_ & jnp.where(adds, has_room, has_one)
        node = jnp.where(adds, to, off)
        step = jnp.where(does, jnp.where(adds, 1.0, -1.0), 0.0)
        whose, where = one_hot(service, num_services), one_hot(node, used_gib.shape[0])
        takes_gib = jnp.asarray(case.replica_gib)[service] * jnp.maximum(step, 0.0)
        used_gib = used_gib + jnp.where(where, takes_gib[None], 0.0)
        free = free + jnp.where(whose[:, None] & where[None], jnp.minimum(step, 0.0)[None, None], 0.0)
        has = jnp.where(whose & any_[None], jnp.where(does[None], has + step[None], wanted), has)
        nodes.append(node)
        changes.append(jnp.where(does, jnp.where(adds, service, num_services - 1 + service), 0))
    return Scaling(jnp.stack(nodes), jnp.stack(changes))


def _window(case: EdgeCloud, config: FrameConfig, rule: HorizontalScaling) -> int:
    """Frames of the stabilisation window."""
    frame_s = case.config.frame_s
    frames = max(1, ceil(rule.stabilisation_s / frame_s - 1e-6))
    if frames > history_frames(case.config, config) or not rule.target > 0.0 or rule.tolerance < 0.0:
        raise ConfigError(
            f"target {rule.target:g}, tolerance {rule.tolerance:g}, stabilisation over {rule.stabilisation_s:g} s",
            where="horizontal scaling",
            allowed=f"a positive target, a tolerance of at least 0, at most the {config.history_s:g} s that are kept",
            advice="change the rule, or FrameConfig.history_s",
        )
    return frames


HPA = OrchestrationBaseline(
    "hpa",
    "Kubernetes' horizontal pod autoscaler on the utilisation of replicas, target 80 %",
    horizontal_scaling(HorizontalScaling()),
)
HPA_REQUESTS = OrchestrationBaseline(
    "hpa_requests",
    "Kubernetes' horizontal pod autoscaler on requests at hand for each replica, target 1",
    horizontal_scaling(HorizontalScaling(load=requests_at_hand, target=1.0)),
)
