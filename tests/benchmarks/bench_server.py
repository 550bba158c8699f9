"""The extender over HTTP: /prioritize with 100 nodes at a fixed rate, decisions logged, latency from the plan.

    python -m tests.benchmarks.bench_server [--seconds 10] [--rate 500] [--connections 16] [--nodes 100]
        [--cases names objects threads] [--json]

The load is open: questions leave when the plan says so, answered or not, and latency counts from there, so a stall is
charged to every question that it held up. Client and server are processes of one machine and share its cores. Beside
the server (names only, as the deployment files set it up, and whole node objects of 1.2 kB) stands Python's own
`ThreadingHTTPServer`, which reads the same questions and answers a constant. Target, of both cases of the server: p99
at most 10 ms, no errors, memory that does not grow (`--seconds 60` for the figure that counts), nine answers of ten by
the policy. What is not met is named. The processor time of an answer says most where the machine is busy.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from tests.serving.bundles import SERVICES, SITES, make_bundle

P99_TARGET_MS = 10.0
GROWTH_TARGET = 1.05
POLICY_TARGET = 0.9
WARM_UP_S = 8.0
"""Longer than the requests' run time, so that the books have as many requests in flight as they will ever have."""
THREADS = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps([{"Host": name, "Score": 0} for name in asked["NodeNames"]]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(json.dumps({"url": f"http://127.0.0.1:{server.server_port}"}), flush=True)
server.serve_forever()
"""


@dataclass(frozen=True)
class Load:
    """What was measured under one load."""

    p50_ms: float
    p99_ms: float
    worst_ms: float
    num_answers: int
    num_errors: int
    memory_mb: float
    growth: float
    cpu_share: float
    cpu_ms: float
    policy_share: float | None

    def missed(self) -> list[str]:
        """The targets that were not met."""
        faults = {
            f"p99 {self.p99_ms:.1f} ms": not self.p99_ms <= P99_TARGET_MS,
            f"{self.num_errors} errors": self.num_errors > 0,
            f"memory x {self.growth:.3f}": self.growth > GROWTH_TARGET,
            f"policy answers {self.policy_share or 0.0:.0%}": (self.policy_share or 0.0) < POLICY_TARGET,
        }
        return [fault for fault, is_missed in faults.items() if is_missed]


def pod_of(index: int) -> dict:
    containers = [
        {
            "name": name,
            "image": f"registry.example/{name}:1.2.3",
            "resources": {
                "requests": {"cpu": "250m", "memory": "256Mi"},
                "limits": {"cpu": "1", "memory": "512Mi"},
            },
            "env": [{"name": f"SETTING_{number}", "value": "x" * 24} for number in range(12)],
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets", "readOnly": True}],
        }
        for name in ("main", "proxy")
    ]
    labels = {"app": SERVICES[1 + index % 2], "pod-template-hash": "5d4f8c7b9"}
    return {
        "metadata": {"name": "pod", "namespace": "shop", "uid": "UID", "labels": labels},
        "spec": {"containers": containers, "nodeSelector": {"topology.kubernetes.io/zone": SITES[index % 2]}},
    }


def node_of(index: int) -> dict:
    name = f"node-{index}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": SITES[index % 2]}
    amounts = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    conditions = [
        {
            "type": kind,
            "status": "False",
            "reason": f"Kubelet{kind}",
            "lastHeartbeatTime": "2024-05-01T12:00:00Z",
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [{"names": [f"registry.example/image-{number}"], "sizeBytes": 10**8} for number in range(4)]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": conditions, "images": images}
    metadata = {"name": name, "uid": f"uid-{index}", "resourceVersion": "4711", "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": status}


def questions(num_nodes: int, *, whole: bool) -> list[tuple[bytes, bytes]]:
    """Bodies in two halves, around the pod's uid."""
    names = [f"node-{index}" for index in range(num_nodes)]
    nodes = {"items": [node_of(index) for index in range(num_nodes)]}
    bodies = []
    for index in range(4):
        asked = {
            "Pod": pod_of(index),
            "Nodes": nodes if whole else None,
            "NodeNames": None if whole else names,
        }
        before, after = json.dumps(asked).encode().split(b"UID")
        bodies.append((before, after))
    return bodies


@contextmanager
def served(command: list[str]) -> Iterator[tuple[int, psutil.Process]]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        try:
            yield int(url.rsplit(":", 1)[1]), psutil.Process(process.pid)
        finally:
            process.terminate()


async def drive(
    port: int, bodies: list[tuple[bytes, bytes]], rate: float, seconds: float, connections: int
) -> list[float]:
    """Seconds from the planned moment to the answer, of every question; infinite where there was none."""
    streams: asyncio.Queue = asyncio.Queue()
    for _ in range(connections):
        streams.put_nowait(await asyncio.open_connection("127.0.0.1", port))
    taken: list[float] = []

    async def query(number: int, due_s: float) -> None:
        before, after = bodies[number % len(bodies)]
        uid = f"{number:08d}-{os.getpid()}".encode()
        length = len(before) + len(uid) + len(after)
        head = f"POST /prioritize HTTP/1.1\r\nHost: s\r\nContent-Length: {length}\r\n\r\n".encode()
        reader, writer = await streams.get()
        try:
            writer.write(head + before + uid + after)
            answer = await reader.readuntil(b"\r\n\r\n")
            fields = dict(line.split(b": ", 1) for line in answer.lower().split(b"\r\n")[1:] if line)
            await reader.readexactly(int(fields[b"content-length"]))
            taken.append(time.perf_counter() - due_s if answer.startswith(b"HTTP/1.1 200") else np.inf)
        except (OSError, EOFError):
            taken.append(np.inf)
        finally:
            streams.put_nowait((reader, writer))

    begun_s, tasks = time.perf_counter(), []
    for number in range(int(rate * seconds)):
        due_s = begun_s + number / rate
        if (wait_s := due_s - time.perf_counter()) > 0:
            await asyncio.sleep(wait_s)
        tasks.append(asyncio.create_task(query(number, due_s)))
    _, late = await asyncio.wait(tasks, timeout=10)
    taken.extend([np.inf] * len(late))
    for task in late:
        task.cancel()
    while not streams.empty():
        streams.get_nowait()[1].close()
    return taken


def policy_share(port: int) -> float | None:
    """Share of all decisions that the policy took; None where nothing tells."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
    except OSError:
        return None
    arms = [line.rsplit(" ", 1) for line in lines if line.startswith("schedtwin_decisions_total{")]
    by_policy = sum(float(count) for name, count in arms if 'arm="policy"' in name)
    return by_policy / max(1.0, sum(float(count) for _, count in arms))


def measure(command: list[str], bodies: list[tuple[bytes, bytes]], arguments: argparse.Namespace) -> Load:
    with served(command) as (port, process):
        rate, connections = arguments.rate, arguments.connections
        asyncio.run(drive(port, bodies, rate, WARM_UP_S, connections))
        memory, cpu_s, begun_s = process.memory_info().rss, sum(process.cpu_times()[:2]), time.perf_counter()
        taken = np.array(asyncio.run(drive(port, bodies, rate, arguments.seconds, connections)))
        cpu_s = sum(process.cpu_times()[:2]) - cpu_s
        cpu_share = cpu_s / (time.perf_counter() - begun_s)
        after, by_policy = process.memory_info().rss, policy_share(port)
    p50, p99, worst = np.sort(taken)[[len(taken) // 2, int(len(taken) * 0.99), -1]] * 1e3
    num_errors = int(np.isinf(taken).sum())
    num_answers = len(taken) - num_errors
    growth, cpu_ms = after / memory, 1e3 * cpu_s / max(1, num_answers)
    return Load(p50, p99, worst, num_answers, num_errors, after / 1e6, growth, cpu_share, cpu_ms, by_policy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=500.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--cases", nargs="+", default=["names", "objects", "threads"])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bundle = make_bundle(Path(folder) / "bundle", num_nodes=arguments.nodes)
        serve = [
            sys.executable,
            "-m",
            "evaluation.commands.cli",
            "serve",
            str(bundle),
            "--port",
            "0",
            "--json",
            "--log",
        ]
        names, whole = (questions(arguments.nodes, whole=whole) for whole in (False, True))
        cases = {
            "names": ([*serve, f"{folder}/names"], names),
            "objects": ([*serve, f"{folder}/objects"], whole),
            "threads": ([sys.executable, "-c", THREADS], names),
        }
        loads = {name: measure(*case, arguments) for name, case in cases.items() if name in arguments.cases}
    if arguments.json:
        print(json.dumps({name: vars(load) for name, load in loads.items()}, indent=2))
        return
    print(f"{arguments.nodes} nodes, {arguments.rate:g} questions/s for {arguments.seconds:g} s, logged")
    for name, load in loads.items():
        print(
            f"{name:<8} p50 {load.p50_ms:6.2f} ms  p99 {load.p99_ms:7.2f} ms  worst {load.worst_ms:7.2f} ms"
            f"  errors {load.num_errors}/{load.num_answers + load.num_errors}"
            f"  memory {load.memory_mb:5.0f} MB x {load.growth:.3f}  {load.cpu_share:.2f} cores"
            f", {load.cpu_ms:.2f} ms each"
            + ("" if load.policy_share is None else f"  policy {load.policy_share:.1%}")
        )
    print(
        f"target: p99 {P99_TARGET_MS:g} ms, no errors, memory x {GROWTH_TARGET:g}, policy {POLICY_TARGET:.0%}"
    )
    for name, load in loads.items():
        if name != "threads":
            print(f"  {name}: {', '.join(load.missed()) + ': missed' if load.missed() else 'met'}")


if __name__ == "__main__":
    main()
