"""Both policies of slot mode as one bundle: the dispatcher as every bundle has it, the orchestrator beside it.

Golden frames are drawn, decided by the original in JAX and held against the copy in NumPy before there is a bundle.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.contract import NOT_STATED, PolicyContract
from offline_rl.export import export_policy, network_facts
from offline_rl.networks import Example
from offline_rl.orchestration.advice import SHARPNESS, advised, advised_actor
from offline_rl.orchestration.stepwise_actor import StepwiseConfig
from offline_rl.placement_contract import feature_facts
from offline_rl.rules.orchestration.planned import (
    ADVICE,
    PlannedConfig,
    hosted_busy,
    lead_of,
    plan_numbers,
    planned,
)
from offline_rl.runner.frame_network import orchestrator_arrays
from offline_rl.runner.frame_view import FrameView, OrchestrationTables
from offline_rl.runner.orchestrator import (
    NUM_FRAMES,
    PROBLEM,
    Orchestrator,
    OrchestratorFacts,
    replay_frames,
    write_orchestrator,
)
from twin.contracts import PyTree
from twin.orchestration.deployment import Deployment
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.forecast import DayForecast
from twin.orchestration.frame_config import FrameConfig, history_frames
from twin.orchestration.frame_state import FrameState, Load, Measured
from twin.orchestration.frames import frame_problem
from twin.orchestration.slots import SLOT_NODE_FEATURES, SLOT_REQUEST_FEATURES
from twin.placement.features import request_features

ACTION = (
    "index of the node that the request in hand is sent to; in the twin any node was taken whose logit was at most the "
    "setting's `margin` below the best, since access points see each other's load late"
)
LEGALITY = (
    "A node is legal where it is available, hosts a replica of the request's service and has a place for it. A request "
    "without a legal node stays in its queue."
)


class Plan(NamedTuple):
    """What the orchestrator plans for."""

    edge: EdgeCloud
    frames: FrameConfig
    forecast: DayForecast
    numbers: PlannedConfig = ADVICE


def export_pair(
    dispatcher: PyTree,
    orchestrator: PyTree,
    plan: Plan,
    config: StepwiseConfig,
    out: Path,
    *,
    margin: float,
    delay_s: float | None = None,
    trained_on: Mapping[str, Any],
    certificate: str | None = None,
    licence: str | None = None,
    seed: int = 0,
    **product: Any,
) -> None:
    """Writes the bundle.

    Args:
        dispatcher: Parameters of a dispatcher.
        orchestrator: Parameters of the stepwise actor that corrects the plan.
        plan: The cluster and its forecast.
        config: Of the stepwise actor.
        out: Folder of the bundle.
        margin: Nats below the best logit within which the dispatcher drew in the twin.
        delay_s: Seconds that its decisions come late, in one place that sees every node in full; None: it decides at
            access points, which see other sites by the means of their nodes.
        trained_on: Facts about the data window.
        certificate: Content hash of the certificate that the twin passed; None if it passed none.
        licence: Under which terms the bundle may be used.
        seed: Of the training, and of what is drawn to prove the copies.
        product: `made_from`, `extra`, `replace` of `export_policy`.

    Raises:
        ProductError: A copy does not decide as the original.
    """
    cluster, features = plan.edge.cluster, (*request_features(plan.edge.cluster), *SLOT_REQUEST_FEATURES)
    contract = PolicyContract(
        problem=PROBLEM,
        choice_features=feature_facts(SLOT_NODE_FEATURES),
        context_features=feature_facts(features),
        choices=cluster.node_names,
        network=network_facts(dispatcher),
        legality=LEGALITY,
        action=ACTION,
        normalisation="none is fitted: shares of capacity, flags, and log1p of counts, amounts and seconds",
        unknown={
            "service": "taken as 'unknown', which no node hosts",
            "node": "any number can be decided among",
        },
        trained_on=dict(trained_on),
        setting={
            "margin": margin,
            "slot_s": plan.edge.config.slot_s,
            "sites": list(cluster.sites),
            "services": list(cluster.services),
            **({} if delay_s is None else {"view": "full", "delay_s": delay_s}),
        },
        certificate=certificate,
        licence=licence or NOT_STATED,
    )
    copy = _copy(orchestrator, plan, config)
    golden = golden_frames(orchestrator, plan, config, np.random.default_rng(seed))
    replay_frames(copy, golden, where=str(out))
    beside = partial(write_orchestrator, orchestrator=copy, golden=golden)
    export_policy(dispatcher, out, contract, seed=seed, beside=beside, **product)


def golden_frames(
    orchestrator: PyTree, plan: Plan, config: StepwiseConfig, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Frames drawn by chance, and what the original changes; leaves [frames, ...]."""
    edge, frames, forecast, numbers = plan
    problem = advised(frame_problem(edge, frames), planned(edge, forecast, frames, numbers))
    state, views = _drawn(plan, rng)
    with jax.default_matmul_precision("highest"):
        observation, legal = problem.observe(state), problem.legal(state)
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape[:-1], leaf.dtype), (observation, legal)
        )
        actor = advised_actor(Example(shapes[0], shapes[1], None), edge, config)
        chosen = jax.jit(lambda params: actor.choose(params, None, observation, legal))(orchestrator)
    found = {name: np.asarray(leaf) for name, leaf in views._asdict().items()}
    return found | {name: np.asarray(leaf).T.astype(np.int64) for name, leaf in chosen._asdict().items()}


def _drawn(plan: Plan, rng: np.random.Generator) -> tuple[FrameState, FrameView]:
    """States of the original with streams of frames, and the same as views [frames, ...]."""
    edge, frames, forecast, _ = plan
    num_services, num_nodes, number = edge.num_services, edge.num_nodes, NUM_FRAMES
    shape = (number, num_services, num_nodes)
    replicas = (
        rng.integers(0, 3, shape)
        * (rng.random(shape) < 0.5)
        * edge.hosts
        * (np.arange(num_services) > 0)[:, None]
    )
    running = replicas * rng.random(shape)
    waiting = rng.exponential(1.0, shape) * (replicas > 0)
    queued = (
        rng.exponential(1.0, (number, num_services, edge.num_seats)) * (np.arange(num_services) > 0)[:, None]
    )
    up = rng.random((number, num_nodes)) < 0.9
    up[:, rng.permutation(num_nodes)[:2]] = True
    changes = np.zeros((3, number, edge.config.changes), np.int64)  # service, node, adds
    adding, removing = np.zeros(shape), np.zeros(shape)
    for frame in range(number):
        for place in range(edge.config.changes):
            service, node, adds = (int(rng.integers(high)) for high in (num_services, num_nodes, 2))
            kind = adding if adds else removing
            if service and (adds or replicas[frame, service, node] > removing[frame, service, node]):
                changes[:, frame, place] = service, node, adds
                kind[frame, service, node] += 1
    busy = rng.exponential(1.0, (number, history_frames(edge.config, frames), num_services))
    busy[rng.random(busy.shape[:2]) < 0.3] = np.nan
    requests = busy + rng.exponential(1.0, busy.shape)
    clock_s = rng.random(number) * forecast.bin_s * len(forecast.rate_per_s)
    used_gib = np.einsum("s,fsn->fn", edge.replica_gib, replicas + adding)
    leaves = [
        np.asarray(one, np.float32) for one in (clock_s, replicas, adding, removing, running, waiting, queued)
    ]
    past = [np.asarray(one, np.float32) for one in (busy, requests)]
    view = FrameView(leaves[0], up, *(leaf[:, 1:] for leaf in leaves[1:]), *(leaf[..., 1:] for leaf in past))

    def streams(leaf: np.ndarray) -> jax.Array:
        kind = leaf.dtype if leaf.dtype == bool else np.int32 if leaf.dtype.kind == "i" else np.float32
        return jnp.asarray(np.moveaxis(leaf, 0, -1), kind)

    deployment = Deployment(
        streams(leaves[1]),
        streams(used_gib),
        streams(changes[0]),
        streams(changes[1]),
        streams(changes[2] > 0),
        streams(np.zeros(changes.shape[1:])),
    )
    unread: Any = None
    load = Load(streams(running), streams(waiting), streams(queued))
    measured = Measured(streams(past[0]), streams(past[1]), unread, unread)
    return FrameState(jnp.asarray(leaves[0]), streams(up), deployment, load, measured, unread), view


def _copy(params: PyTree, plan: Plan, config: StepwiseConfig) -> Orchestrator:
    """The orchestrator in NumPy."""
    edge, frames, forecast, numbers = plan
    cluster, frame_s = edge.cluster, edge.config.frame_s
    seat_of_site = np.full(len(cluster.sites), -1)
    seat_of_site[edge.seat_site] = np.arange(edge.num_seats)
    facts = OrchestratorFacts(
        cluster.node_names,
        cluster.services[1:],
        tuple(cluster.sites[site] for site in edge.seat_site),
        frame_s,
        history_frames(edge.config, frames),
        frames.num_changes,
        config.graph.num_hops,
        config.graph.mean,
        SHARPNESS,
    )
    fixed = OrchestrationTables(
        edge.cores, edge.memory_gib, np.asarray(cluster.is_cloud, bool), np.asarray(cluster.site_of_node), seat_of_site,
        edge.hosts[1:], edge.replica_gib[1:], edge.work_s[1:], edge.pull_s[1:], forecast.run_s[1:],
        hosted_busy(edge, forecast)[:, 1:], np.asarray(forecast.bin_s), np.asarray(frame_s),
        np.asarray(lead_of(edge, numbers)), np.array(plan_numbers(edge, numbers), np.float32),
    )  # fmt: skip
    return Orchestrator(facts, fixed, orchestrator_arrays(params))
