"""The contract of a placement policy, from the encoding it was trained with."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from offline_rl.contract import NOT_STATED, AlarmFacts, FeatureFacts, NetworkFacts, PolicyContract
from twin.placement.cold_starts import ColdStarts
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES, Feature, request_features
from twin.placement.types import RESOURCES, Cluster
from twin.placement.wakes import Wakes

LEGALITY = (
    "A node may take a request if it is available, among the request's candidates (where it lists any), and could ever "
    "hold it: demand / num_nodes within its largest machine, demand within the node, each with a slack of 1e-6. The "
    "request may have to queue there. In training every available node was legal where nothing fitted."
)
ACTION = "index of the node (of the contract's choices) that the request is offered to"
UNKNOWN = {
    "node": "never chosen by a policy bound to its nodes; by one that is not, where its capacity is told",
    "node not described": "taken as not available and idle, with the capacity it had in training",
    "site": "taken as the first site of training",
    "scenario, service, queue": "taken as 'unknown', which training used for rare and missing labels",
    "candidates": "kept to exactly; one unseen in training is shown to the policy as the smallest known one around it; "
    "where a request lists none, a policy bound to its nodes takes those of nodes_of_queue, which the log never left",
    "agent": "taken to accept what its scenario accepts",
    "run time": "where a request states none, the median run time of its service in training",
}


def placement_contract(
    encoding: Encoding,
    network: NetworkFacts,
    *,
    ranges: tuple[np.ndarray, np.ndarray] | None = None,
    alarm: AlarmFacts | None = None,
    trained_on: Mapping[str, Any] | None = None,
    certificate: str | None = None,
    licence: str | None = None,
) -> PolicyContract:
    """The contract between a placement policy and its callers.

    Args:
        encoding: What the policy's numbers mean.
        network: What it is.
        ranges: Least and largest value of every feature, flattened as `flatten_features` has them, each
            [F * nodes + R]; ranges of a node's features are taken over all nodes.
        alarm: What an alarm expects of days like the training days.
        trained_on: Facts about the data window, besides the training days.
        certificate: Content hash of the certificate of the twin it was trained in.
        licence: Under which terms the bundle may be used.
    """
    cluster, problem = encoding.cluster, encoding.problem
    of_nodes = _as_found(feature_facts(NODE_FEATURES), cluster)
    of_request = feature_facts(request_features(cluster))
    if ranges is not None:
        low, high = ranges
        cut = len(of_nodes) * cluster.num_nodes
        by_node = low[:cut].reshape(len(of_nodes), -1), high[:cut].reshape(len(of_nodes), -1)
        of_nodes = _with_ranges(of_nodes, by_node[0].min(axis=1), by_node[1].max(axis=1))
        of_request = _with_ranges(of_request, low[cut:], high[cut:])
    days = [day.isoformat() for day in encoding.train_days]
    return PolicyContract(
        problem="placement",
        choice_features=of_nodes,
        context_features=of_request,
        choices=cluster.node_names,
        network=network,
        legality=LEGALITY,
        action=ACTION,
        normalisation="none is fitted: shares of capacity, flags, and log1p of counts, amounts and durations "
        f"(in units of {problem.time_unit_s:g} s)",
        unknown=UNKNOWN,
        trained_on={
            "first_day": min(days),
            "last_day": max(days),
            "num_days": len(days),
            **(trained_on or {}),
        },
        setting=setting_of(encoding),
        alarm=alarm,
        certificate=certificate,
        licence=licence or NOT_STATED,
    )


def _as_found(of_nodes: tuple[FeatureFacts, ...], cluster: Cluster) -> tuple[FeatureFacts, ...]:
    """The features with what they mean where nodes sleep or lose what runs on them, or where requests wait for other
    resources than cores."""
    meanings = {}
    if cluster.wakes is not None:
        meanings["usual_run"] = (
            "expected run time here, by how the service usually runs here, and what is left until the node is awake"
        )
    if cluster.concurrency:
        first = meanings.get("usual_run", "expected run time here, by how the service usually runs here")
        meanings["usual_run"] = (
            f"{first}, and how long its requests here leave to wait where all places are taken"
        )
    if cluster.hazard or cluster.timeouts is not None:
        kept = (
            ["the node keeps the run to its end, by its losses per second of running"]
            if cluster.hazard
            else []
        )
        kept += ["the run ends before it is cut off"] if cluster.timeouts is not None else []
        meanings["acceptance"] = (
            "probability that the requesting agent accepts an offer here, by past answers, and that "
            f"{' and that '.join(kept)}"
        )
    if cluster.scarce:
        also = " or ".join(RESOURCES[resource] for resource in cluster.scarce)
        meanings["needed_share"] = (
            "cores asked for, as a share of the node's capacity; so much more as what would be left of "
            f"{also} is less than of cores"
        )
        meanings["core_time"] = f"the usual run here, times the largest share asked for of cores, {also}"
    return tuple(replace(one, description=meanings.get(one.name, one.description)) for one in of_nodes)


def setting_of(encoding: Encoding) -> dict[str, Any]:
    """What placement features are computed with, as plain JSON (see `offline_rl.runner.setting`)."""
    cluster, names = encoding.cluster, encoding.cluster.node_names
    nodes = []
    for row, name in enumerate(names):
        node: dict[str, Any] = {"name": name, "site": cluster.sites[cluster.site_of_node[row]]}
        node["is_cloud"] = bool(cluster.is_cloud[row])
        for resource, kind in enumerate(RESOURCES):
            node[kind] = _finite(cluster.capacity[resource, row])
            node[f"machine_{kind}"] = _finite(cluster.unit_capacity[resource, row])
        node["run_ratio"] = cluster.run_ratio[:, row].tolist()
        node["run_variance"] = cluster.run_variance[:, row].tolist()
        nodes.append(node)
    machines = {name: names[row] for name, row in encoding.node_of_name.items() if name not in names}
    return {
        "nodes": nodes,
        "sites": list(cluster.sites),
        "scenarios": list(cluster.scenarios),
        "services": list(cluster.services),
        "queues": list(cluster.queues),
        "candidate_sets": [
            [name for name, allowed in zip(names, rule, strict=True) if allowed] for rule in cluster.rules
        ],
        "acceptance_of_agent": dict(zip(cluster.agents, cluster.acceptance_of_agent.tolist(), strict=True)),
        "acceptance_of_scenario": cluster.acceptance_of_scenario.tolist(),
        "run_of_service_s": list(encoding.run_of_service_s),
        "time_unit_s": encoding.problem.time_unit_s,
        "memory_s": encoding.problem.memory_s,
        "node_of_machine": machines,
        "sees_all": encoding.problem.view == "full",
        "knows_week": encoding.cluster.knows_week,
        "run_dynamics": asdict(cluster.dynamics) if cluster.dynamics.moves else None,
        "trained_until_s": encoding.trained_until_s,
        "cold_starts": None if cluster.cold is None else _cold_starts(cluster.cold),
        **_of_runs(encoding),
        **_nodes_of_queue(encoding),
        **({} if cluster.wakes is None else {"wakes": _wakes(cluster.wakes)}),
        **({"kinds_by": cluster.kinds_by} if cluster.kinds_by else {}),
        **({"hazard": list(cluster.hazard)} if cluster.hazard else {}),
        **({} if cluster.timeouts is None else {"timeouts": asdict(cluster.timeouts)}),
        **({"concurrency": [list(row) for row in cluster.concurrency]} if cluster.concurrency else {}),
        **({"scarce": [RESOURCES[resource] for resource in cluster.scarce]} if cluster.scarce else {}),
    }


def _cold_starts(cold: ColdStarts) -> dict[str, Any]:
    known: dict[str, Any] = {"memory_s": cold.memory_s, "startup_s": cold.startup_s.tolist()}
    if cold.room is not None and cold.slowness is not None:
        known |= {"room": cold.room.tolist(), "slowness": cold.slowness.tolist()}
    if cold.part is not None:
        known["part"] = cold.part.tolist()
    return known


def _wakes(wakes: Wakes) -> dict[str, Any]:
    return {"after_s": wakes.after_s.tolist(), "wake_s": wakes.wake_s.tolist()}


def _of_runs(encoding: Encoding) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if (labels := encoding.run_labels) is not None:
        found["run_labels"] = {
            "of_scenario": labels.of_scenario.tolist(),
            "of_queue": labels.of_queue.tolist(),
        }
    if (habits := encoding.run_habits) is not None:
        if habits.agents:
            found["run_habits"] = dict(zip(habits.agents, habits.of_agent.T.tolist(), strict=True))
        if habits.exponent < 1.0:
            found["requested_runs"] = {"exponent": habits.exponent, "typical_s": habits.typical_s.tolist()}
    return found


def _nodes_of_queue(encoding: Encoding) -> dict[str, Any]:
    names = encoding.cluster.node_names
    of_queue = {queue: [names[node] for node in nodes] for queue, nodes in encoding.nodes_of_queue.items()}
    return {"nodes_of_queue": of_queue} if of_queue else {}


def feature_facts(features: Sequence[Feature]) -> tuple[FeatureFacts, ...]:
    """Features as a contract describes them, without ranges."""
    return tuple(FeatureFacts(one.name, one.unit, description=one.description) for one in features)


def _with_ranges(
    features: tuple[FeatureFacts, ...], low: np.ndarray, high: np.ndarray
) -> tuple[FeatureFacts, ...]:
    return tuple(
        FeatureFacts(one.name, one.unit, least, most, one.description)
        for one, least, most in zip(features, low.tolist(), high.tolist(), strict=True)
    )


def _finite(amount: float) -> float | None:
    return float(amount) if np.isfinite(amount) else None
