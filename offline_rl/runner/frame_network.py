"""The stepwise actor in NumPy, from named arrays: what decides a frame without JAX. The arithmetic of `stepwise_actor`.

One decision at a time: arrays have no batch axes. Everything that depends on a node alone is computed once for all
nodes; of the changes only those at the chosen node are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from offline_rl.errors import PolicyInputError
from offline_rl.numpy_networks import Arrays
from twin.nested import by_path


class Frame(NamedTuple):
    """What is seen when replicas are changed: `stepwise_actor.ChangeView` without batch axes."""

    node: np.ndarray  # [F, nodes]
    point: np.ndarray  # [G, access points]
    service: np.ndarray  # [S, services]
    pair: np.ndarray  # [K, services, nodes]
    able: np.ndarray  # [2, services, nodes] bool
    up: np.ndarray  # [nodes] bool


class Chosen(NamedTuple):
    """The changes of a frame."""

    node: np.ndarray  # [H] int64
    change: np.ndarray  # [H] int64: 0 none, w one replica more of the w-th service, W + w one less


@dataclass(frozen=True)
class NumpyOrchestrator:
    """A stepwise actor that takes the likeliest choices.

    Attributes:
        arrays: Parameters by path, `encoder/f1/Dense_0/kernel` and so on (`orchestrator_arrays`).
        point_of_node: [nodes] access point of every node.
        num_points: Number of access points.
        num_changes: H.
        num_hops, mean: Of `GraphConfig`.
        filtered: Of `StepwiseConfig`.
        rule: Scores that are corrected: (frame, made [services, nodes]) -> [2W + 1, nodes], see
            `stepwise_actor.ChangeRule`; none if None.
    """

    arrays: Arrays
    point_of_node: np.ndarray
    num_points: int
    num_changes: int
    num_hops: int = 1
    mean: bool = True
    filtered: bool = True
    rule: Callable[[Frame, np.ndarray], np.ndarray] | None = None

    def decide(self, frame: Frame) -> Chosen:
        """The changes of a frame.

        Raises:
            PolicyInputError: No node is left to be chosen, or a number is not finite.
        """
        _refuse(frame, self.num_changes, len(self.point_of_node))
        made, free = np.zeros(frame.pair.shape[1:], np.float32), frame.up.copy()
        adds, removes = frame.able
        possible = np.concatenate([np.ones((1, adds.shape[1]), bool), adds, removes])
        nodes, changes = [], []
        for _ in range(self.num_changes):
            requested = made.sum(axis=1)
            places = self._places(frame, requested)
            values = self._head("g", self._affine("node_first", places))
            base, is_open = None if self.rule is None else self.rule(frame, made), free
            if base is not None:
                values = values + np.where(possible, base, -np.inf).max(axis=0)
                is_open = free | (frame.up & ((base > 0.0) & possible)[1:].any(axis=0))
            node = int(np.argmax(np.where(is_open, values, -np.inf)))
            of_change = self._affine("change_first", _described(frame, requested, node))
            values = self._head("q", self._affine("place_first", places[:, node : node + 1]) + of_change)
            values = values if base is None else values + base[:, node]
            change = int(np.argmax(np.where(possible[:, node], values, -np.inf) if self.filtered else values))
            nodes.append(node)
            changes.append(change)
            free[node] = False
            if change:
                made[(change - 1) % len(made), node] += 1.0 if change <= len(made) else -1.0
        return Chosen(np.array(nodes), np.array(changes))

    def _places(self, frame: Frame, requested: np.ndarray) -> np.ndarray:
        """[3 width, nodes]: embeddings of nodes, of their access points, of the cluster."""
        service = np.concatenate([frame.service, requested[None]])
        num_pair = len(frame.pair) + 2
        kernel, bias = self.arrays["services/kernel"], self.arrays["services/bias"]
        wide = np.concatenate([frame.pair, frame.able.astype(np.float32)])
        hosted = np.tensordot(kernel[:num_pair].T, wide, axes=1)
        hosted += (kernel[num_pair:].T @ service + bias[:, None])[:, :, None]
        mean = np.maximum(hosted, 0.0, out=hosted).mean(axis=1)
        own = self._affine("encoder/node", np.concatenate([frame.node, mean]))
        site, size = self.point_of_node, np.bincount(self.point_of_node, minlength=self.num_points)
        members = np.zeros((len(site), self.num_points), np.float32)
        members[np.arange(len(site)), site] = 1.0
        embedded = own
        for _ in range(self.num_hops):
            message = self._network("f1", embedded)
            others = (message @ members)[:, site] - message
            embedded = self._network("h1", self._scaled(others, size[site] - 1)) + own
        summary = self._scaled(self._network("f2", embedded) @ members, size)
        points = self._network("h2", summary) + self._affine("encoder/point", frame.point)
        total = self._network("f3", points).sum(axis=1, keepdims=True)
        cluster = self._network("h3", total / self.num_points if self.mean else total)
        return np.concatenate([embedded, points[:, site], np.broadcast_to(cluster, embedded.shape)])

    def _scaled(self, total: np.ndarray, count: np.ndarray) -> np.ndarray:
        return total / np.maximum(count, 1).astype(np.float32) if self.mean else total

    def _affine(self, name: str, values: np.ndarray) -> np.ndarray:
        return np.asarray(self.arrays[f"{name}/kernel"].T @ values + self.arrays[f"{name}/bias"][:, None])

    def _network(self, name: str, values: np.ndarray) -> np.ndarray:
        return self._perceptron(f"encoder/{name}", values)

    def _head(self, name: str, first: np.ndarray) -> np.ndarray:
        return self._perceptron(name, np.maximum(first, 0.0))[0]

    def _perceptron(self, name: str, values: np.ndarray) -> np.ndarray:
        index = 0
        while f"{name}/Dense_{index + 1}/kernel" in self.arrays:
            values = np.maximum(self._affine(f"{name}/Dense_{index}", values), 0.0)
            index += 1
        return self._affine(f"{name}/Dense_{index}", values)


def orchestrator_arrays(params: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Parameters of the stepwise actor by path, float32; any nested mapping whose leaves are arrays."""
    return {path: np.ascontiguousarray(leaf, np.float32) for path, leaf in by_path(params["params"]).items()}


def _described(frame: Frame, requested: np.ndarray, node: int) -> np.ndarray:
    """[D, 2W + 1] what describes every change at a node."""
    service = np.concatenate([frame.pair[:, :, node], frame.service, requested[None]])
    num_services = service.shape[1]
    described = np.zeros((3 + len(service), 2 * num_services + 1), np.float32)
    described[0, 0], described[1, 1 : num_services + 1], described[2, num_services + 1 :] = 1.0, 1.0, 1.0
    described[3:, 1 : num_services + 1] = described[3:, num_services + 1 :] = service
    return described


def _refuse(frame: Frame, num_changes: int, num_nodes: int) -> None:
    if frame.up.shape != (num_nodes,) or frame.up.sum() < num_changes:
        raise PolicyInputError(
            f"{int(frame.up.sum())} of {len(frame.up)} nodes can be chosen",
            where="NumpyOrchestrator.decide",
            allowed=f"{num_nodes} nodes, at least {num_changes} of them up",
            advice="leave the deployment as it is until nodes are back",
        )
    for name, values in zip(Frame._fields[:4], frame[:4], strict=True):
        if not np.isfinite(values).all():
            raise PolicyInputError(
                f"{name} has numbers that are not finite",
                where="NumpyOrchestrator.decide",
                allowed="finite features",
                advice="leave the deployment as it is until measurements are back",
            )
