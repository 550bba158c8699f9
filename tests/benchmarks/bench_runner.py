"""Latency of a decision in the runner: from descriptions, from its own books, and of the bare network; one thread.

    python -m tests.benchmarks.bench_runner [--decisions 5000] [--json]

A cluster of 5 sites and 30 services holds four requests a node, three of them running; every decision is asked of
another request at a later instant. Wall time, and the time on the processor, which a busy machine does not stretch.
Targets: at 40 nodes p50 at most 100 microseconds and p99 at most 1 ms; 1,000 nodes under 5 ms with a scorer.
"""

import os

os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from offline_rl.contract import NetworkFacts
from offline_rl.runner import Node, Policy, Request, load
from tests.offline_rl.bundles import made_policy
from tests.twin.made import made_cluster, made_encoding

NOW_S = 1.7e9
NETWORKS = {
    "MLP 256-128-32": NetworkFacts("mlp", (256, 128, 32)),
    "scorer 64-32, bound": NetworkFacts("scorer", (64, 32), identity=True, pooled=True),
    "scorer 64-32, free": NetworkFacts("scorer", (64, 32), identity=False, pooled=True),
}
CASES = [(40, name) for name in NETWORKS] + [(1000, "scorer 64-32, free")]
LIMITS_US = {40: (100.0, 1000.0), 1000: (5000.0, 5000.0)}


def made_requests(num: int = 200) -> list[Request]:
    rng = np.random.default_rng(0)
    return [
        Request(
            cpu_cores=float(rng.uniform(0.1, 2.0)),
            memory_gib=float(rng.uniform(0.1, 1.0)),
            site=f"site-{index % 5}",
            service=f"service-{1 + index % 29}",
            requested_run_s=float(rng.uniform(1.0, 30.0)),
            deadline_s=20.0,
        )
        for index in range(num)
    ]


def ways_of(policy: Policy, requests: list[Request]) -> dict[str, Callable[[int], object]]:
    """The ways to a decision: number of the decision -> it."""
    names = policy.contract.choices
    ledger = policy.ledger([Node(name) for name in names])
    for number in range(4 * len(names)):
        ledger.place(number, names[number % len(names)], requests[number % len(requests)], NOW_S)
        if number % 4:
            ledger.start(number, NOW_S + 0.1)
    nodes = ledger.nodes(NOW_S + 1.0)
    width, num_features, num_context = policy.contract.widths
    rng = np.random.default_rng(1)
    choices = rng.normal(size=(1, width, num_features)).astype(np.float32)
    context, legal = rng.normal(size=(1, num_context)).astype(np.float32), np.ones((1, width), bool)

    def request(number: int) -> Request:
        return requests[number % len(requests)]

    return {
        "books": lambda number: ledger.decide(request(number), NOW_S + 1.0 + 0.01 * number),
        "descriptions": lambda number: policy.decide(nodes, request(number), NOW_S + 1.0 + 0.01 * number),
        "network alone": lambda number: policy.exported.network(choices, context, legal),
    }


def measured(way: Callable[[int], object], num_decisions: int) -> dict[str, float]:
    """Microseconds: p50 and p99 of wall time and of processor time."""
    for number in range(100):
        way(number)
    spent = np.zeros((2, num_decisions))
    gc.disable()
    for number in range(num_decisions):
        begin, begin_busy = time.perf_counter(), time.thread_time()
        way(number)
        spent[:, number] = time.perf_counter() - begin, time.thread_time() - begin_busy
    gc.enable()
    (p50, busy50), (p99, busy99) = np.percentile(1e6 * spent, [50, 99], axis=1)
    return {"p50_us": p50, "p99_us": p99, "p50_busy_us": busy50, "p99_busy_us": busy99}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--decisions", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows, requests = [], made_requests()
    for num_nodes, name in CASES:
        with tempfile.TemporaryDirectory() as folder:
            cluster = made_cluster(num_edge=num_nodes - 1, num_sites=5, num_services=30)
            made_policy(Path(folder) / "bundle", made_encoding(cluster), NETWORKS[name])
            for backend in ("numpy", "onnx"):
                ways = ways_of(load(Path(folder) / "bundle", backend), requests)
                for way, decide in ways.items():
                    num_decisions = arguments.decisions if num_nodes < 100 else arguments.decisions // 10
                    times = {key: round(value, 1) for key, value in measured(decide, num_decisions).items()}
                    rows.append({"nodes": num_nodes, "network": name, "backend": backend, "way": way} | times)
    if arguments.json:
        print(json.dumps(rows))
        return
    print(
        "microseconds a decision      nodes backend  from                p50      p99   busy p50   busy p99"
    )
    for row in rows:
        limit50, limit99 = LIMITS_US[row["nodes"]]
        kept = "" if row["p50_us"] <= limit50 and row["p99_us"] <= limit99 else "  over the target"
        print(
            f"{row['network']:<28} {row['nodes']:>5} {row['backend']:<8} {row['way']:<15} {row['p50_us']:>8.1f}"
            f" {row['p99_us']:>8.1f} {row['p50_busy_us']:>10.1f} {row['p99_busy_us']:>10.1f}{kept}"
        )


if __name__ == "__main__":
    main()
