"""Pods beside a real kube-scheduler: made, watched until they are bound, run as a kubelet would, and measured."""

import contextlib
import http.client
import json
import math
import queue
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tests.kube.control_plane import MERGE, Api, ControlPlane
from tests.kube.server import Server

PODS = "/api/v1/namespaces/default/pods"
NODES = {"edge-0": (4, 1.0), "edge-1": (4, 1.0), "edge-2": (4, 1.0), "cloud-0": (8, 2.0), "cloud-1": (8, 2.0)}
"""Node -> cores, speed."""
SERVICES = {"resize": (1, 0.6), "detect": (2, 1.5)}
"""Service -> cores, seconds on a node of speed 1."""
DEADLINE_S = 2.0
SPREAD = 0.2
"""Deviation of the logarithms of run times."""
PATIENCE_S = 120.0
"""How long a pod may wait for its node at most."""


@dataclass
class Pod:
    """A pod and what became of it; instants are on the clock of `time.monotonic`."""

    name: str
    service: str
    uid: str = ""
    node: str = ""
    made_s: float = math.nan
    bound_s: float = math.nan
    ended: bool = False

    @property
    def wait_s(self) -> float:
        """From its creation to its binding; NaN where it was not bound."""
        return self.bound_s - self.made_s


@dataclass(frozen=True)
class Phase:
    """What was measured in one phase.

    Attributes:
        name: What was done to the server.
        timeout_ms: What kube-scheduler waited for it.
        waits_s: From creation to binding, of every pod that was bound.
        num_pods: Made.
        num_named: Bound to the node that the policy named, by the decision log.
    """

    name: str
    timeout_ms: int
    waits_s: tuple[float, ...]
    num_pods: int
    num_named: int

    @property
    def median_s(self) -> float:
        """Of the waits; NaN where there are none."""
        return median(self.waits_s) if self.waits_s else math.nan

    def __str__(self) -> str:
        """A line of the table."""
        worst_s = max(self.waits_s, default=math.nan)
        return (
            f"{self.timeout_ms:>4} ms  {self.name:<8} bound {len(self.waits_s):>3} of {self.num_pods:<3} "
            f"as the policy named {self.num_named:>3}  median {self.median_s:6.2f} s  worst {worst_s:6.2f} s"
        )


@dataclass
class Cluster:
    """The trial's nodes, with one loop that makes pods, sees them bound and ends them."""

    plane: ControlPlane
    rng: random.Random = field(default_factory=lambda: random.Random(0))
    num_made: int = 0

    def __post_init__(self) -> None:
        self.api: Api = self.plane.api()
        self._seen: queue.SimpleQueue[tuple[float, dict[str, Any]]] = queue.SimpleQueue()
        for name, (cores, _) in NODES.items():
            self.api.call("POST", "/api/v1/nodes", node_object(name, cores))
        version = self.api.call("GET", PODS)["metadata"]["resourceVersion"]
        watch = threading.Thread(target=self._watch, args=(self.plane.api(None), version), daemon=True)
        watch.start()
        self.plane.after.callback(watch.join, 10.0)  # it ends with the server

    def introduce(self, server: Server) -> None:
        """Tells a server which nodes there are, in the words of the API."""
        server.tell("/nodes", self.api.call("GET", "/api/v1/nodes"))

    def play(self, num_pods: int, server: Server | None) -> list[Pod]:
        """Makes pods at once and runs all of them to their end.

        Args:
            num_pods: How many.
            server: Is told of starts and ends, if it hears at all.

        Returns:
            The pods; those that were not bound in time have no node.
        """
        services = self.rng.choices(list(SERVICES), k=num_pods)
        made = [Pod(f"pod-{self.num_made + index}", service) for index, service in enumerate(services)]
        self.num_made += num_pods
        for pod in made:
            self._make(pod)
        pods, ends = {pod.name: pod for pod in made}, list[tuple[float, Pod]]()
        patient_s = time.monotonic() + PATIENCE_S
        while not all(pod.ended for pod in made) and (now_s := time.monotonic()) < patient_s:
            for _, pod in [end for end in ends if end[0] <= now_s]:
                self._end(pod, server)
            ends = [end for end in ends if end[0] > now_s]
            ends += [(pod.bound_s + self._start(pod, server), pod) for pod in self._newly_bound(pods)]
        return made

    def _make(self, pod: Pod) -> None:
        pod.made_s = time.monotonic()
        pod.uid = self.api.call("POST", PODS, pod_object(pod))["metadata"]["uid"]

    def _newly_bound(self, pods: dict[str, Pod]) -> Iterator[Pod]:
        """Those that the watch has seen bound by now; waits a little for the first of them."""
        with contextlib.suppress(queue.Empty):
            wait_s = 0.01
            while True:
                seen_s, told = self._seen.get(timeout=wait_s)
                pod, node = pods.get(told["metadata"]["name"]), told["spec"].get("nodeName")
                if pod is not None and node and not pod.node:
                    pod.node, pod.bound_s = node, seen_s
                    yield pod
                wait_s = 0.0

    def _start(self, pod: Pod, server: Server | None) -> float:
        """Its run time; the server hears of the start."""
        if server is not None:
            server.tell("/events", {"request_id": pod.uid, "event": "start", "node": pod.node})
        run_s, speed = SERVICES[pod.service][1], NODES[pod.node][1]
        return run_s / speed * self.rng.lognormvariate(0.0, SPREAD)

    def _end(self, pod: Pod, server: Server | None) -> None:
        ended = {"status": {"phase": "Succeeded"}}
        self.api.call("PATCH", f"{PODS}/{pod.name}/status", ended, MERGE)
        if server is not None:
            server.tell("/events", {"request_id": pod.uid, "event": "finish"})
        pod.ended = True

    def _watch(self, api: Api, version: str) -> None:
        with contextlib.suppress(OSError, http.client.HTTPException, json.JSONDecodeError):  # its end
            for event in api.watch(PODS, version):
                self._seen.put((time.monotonic(), event["object"]))


def measured(name: str, timeout_ms: int, pods: Sequence[Pod], decisions: dict[str, dict[str, str]]) -> Phase:
    """What a phase's pods tell, together with the rows of the decision log."""
    bound = [pod for pod in pods if pod.node]
    named = [
        pod
        for pod in bound
        if (row := decisions.get(pod.uid)) and row["arm"] == "policy" and row["offered_node"] == pod.node
    ]
    return Phase(name, timeout_ms, tuple(pod.wait_s for pod in bound), len(pods), len(named))


def node_object(name: str, cores: int) -> dict[str, Any]:
    """A node that is ready, as its kubelet would say."""
    amounts = {"cpu": str(cores), "memory": "32Gi", "pods": "110"}
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "zone-a"}
    status = {
        "capacity": amounts,
        "allocatable": amounts,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Evaluation"}],
    }
    return {"metadata": {"name": name, "labels": labels}, "status": status}


def pod_object(pod: Pod) -> dict[str, Any]:
    """A pod for the scheduler on trial."""
    cores, run_s = SERVICES[pod.service]
    marks = {
        "schedtwin.io/service": pod.service,
        "schedtwin.io/site": "zone-a",
        "schedtwin.io/deadline-seconds": str(DEADLINE_S),
        "schedtwin.io/expected-run-seconds": str(run_s),
    }
    asked = {"requests": {"cpu": str(cores), "memory": "1Gi"}}
    return {
        "metadata": {"name": pod.name, "annotations": marks},
        "spec": {
            "schedulerName": "schedtwin",
            "containers": [{"name": "main", "image": "none", "resources": asked}],
        },
    }
