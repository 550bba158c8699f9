"""Latency of dispatch and orchestration decisions in NumPy; one thread.

    python -m tests.benchmarks.bench_decisions [--decisions 2000] [--json]

A dispatcher decides among 55 nodes (the papers' network, a shared scorer, the scorer that is not pooled), an
orchestrator of KMPS's graph and one of KaiS's two changes among 110 nodes and 30 services. Wall time from features.
Targets: p50 of a dispatch decision at most 100 microseconds, of an orchestration decision at most 5 ms.
"""

import os

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
import json

import jax
import numpy as np

from offline_rl.contract import FeatureFacts, NetworkFacts, PolicyContract
from offline_rl.numpy_networks import numpy_network, wanted_shapes
from offline_rl.orchestration.graph_encoder import KAIS_GRAPH, KMPS_GRAPH, GraphConfig
from offline_rl.orchestration.stepwise_actor import ChangeView, StepwiseConfig, stepwise_actor
from offline_rl.runner.frame_network import Frame, NumpyOrchestrator, orchestrator_arrays
from tests.benchmarks.bench_runner import measured
from twin.orchestration.slots import SLOT_NODE_FEATURES, SLOT_REQUEST_FEATURES
from twin.placement.features import NUMERIC_REQUEST_FEATURES

NUM_NODES, NUM_SERVICES, NUM_POINTS = 55, 30, 5
DISPATCHERS = {
    "MLP 256-128-32": NetworkFacts("mlp", (256, 128, 32)),
    "scorer 64-32": NetworkFacts("scorer", (64, 32), identity=False, pooled=True),
    "scorer 32-16, not pooled": NetworkFacts("scorer", (32, 16), identity=False, pooled=False),
}
ORCHESTRATORS = {"graph of KaiS": KAIS_GRAPH, "graph of KMPS": KMPS_GRAPH}
LIMITS_US = {"dispatch": 100.0, "orchestration": 5000.0}


def dispatching(facts: NetworkFacts, num_decisions: int) -> dict[str, float]:
    """Times of the network and the choice, for one request."""
    num_context = len(NUMERIC_REQUEST_FEATURES) + len(SLOT_REQUEST_FEATURES) + NUM_SERVICES + NUM_POINTS
    features = tuple(FeatureFacts(one.name, one.unit) for one in SLOT_NODE_FEATURES)
    context = tuple(FeatureFacts(f"context-{index}", "1") for index in range(num_context))
    names = tuple(f"node-{index}" for index in range(NUM_NODES))
    contract = PolicyContract("orchestration", features, context, names, facts, "replicas")
    random = np.random.default_rng(0)
    arrays = {name: random.normal(size=shape, scale=0.1) for name, shape in wanted_shapes(contract).items()}
    network = numpy_network(arrays, contract)
    choices = random.normal(size=(1, NUM_NODES, len(features))).astype(np.float32)
    asked, legal = (
        random.normal(size=(1, num_context)).astype(np.float32),
        random.random((1, NUM_NODES)) < 0.5,
    )
    return measured(lambda _: np.argmax(network(choices, asked, legal)), num_decisions)


def orchestrating(graph: GraphConfig, num_decisions: int, num_nodes: int = 110) -> dict[str, float]:
    """Times of two changes."""
    random = np.random.default_rng(0)
    shapes = (8, num_nodes), (2, NUM_POINTS), (6, NUM_SERVICES), (6, NUM_SERVICES, num_nodes)
    parts = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    able = random.random((2, NUM_SERVICES, num_nodes)) < 0.5
    frame = Frame(*parts, able, np.ones(num_nodes, bool))
    sites = np.arange(num_nodes) % NUM_POINTS
    actor = stepwise_actor(ChangeView(*frame), lambda one, _: one, tuple(sites), 2, StepwiseConfig(graph))
    arrays = orchestrator_arrays(actor.init(jax.random.key(0)))
    policy = NumpyOrchestrator(arrays, sites, NUM_POINTS, 2, graph.num_hops)
    return measured(lambda _: policy.decide(frame), num_decisions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--decisions", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = [
        {"decision": "dispatch", "network": name} | dispatching(facts, arguments.decisions)
        for name, facts in DISPATCHERS.items()
    ]
    rows += [
        {"decision": "orchestration", "network": name} | orchestrating(graph, arguments.decisions // 10)
        for name, graph in ORCHESTRATORS.items()
    ]
    if arguments.json:
        print(json.dumps(rows))
        return
    print("microseconds a decision                          p50      p99   busy p50   busy p99")
    for row in rows:
        kept = "" if row["p50_us"] <= LIMITS_US[row["decision"]] else "  over the target"
        times = f"{row['p50_us']:>8.1f} {row['p99_us']:>8.1f} {row['p50_busy_us']:>10.1f} {row['p99_busy_us']:>10.1f}"
        print(f"{row['decision']:<14} {row['network']:<26} {times}{kept}")


if __name__ == "__main__":
    main()
