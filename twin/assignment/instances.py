"""Instances drawn by rule, as in CoRaiS, section VII-A: a region of Q among N edges, and Z requests.

The text at hand has lost the ranges. Those of `InstanceConfig` were chosen so that running every request where it came
(`local`) and one random assignment stand to the best that can be found about as in the paper's table III.
"""

from dataclasses import dataclass

import numpy as np

from logs_schema.errors import ConfigError
from twin.assignment.types import AssignmentInstance, Costs, Edges, RoundRequests


@dataclass(frozen=True)
class InstanceConfig:
    """Laws of drawn instances; all are uniform, ends included.

    Attributes:
        num_all_edges: N, all edges of the system, where clients may move to.
        num_edges: Q, edges of the control region, which requests come to and are sent to.
        num_requests: Z.
        replicas: Range of every edge's replicas.
        s_per_mib: Range of the slope of computing time over input.
        backlogs: Range of the number of earlier requests of either kind on every edge.
        size_mib: Range of inputs and outputs.
        transfer_s: Seconds of one MiB over one unit of distance; edges lie in the unit square.
    """

    num_all_edges: int = 10
    num_edges: int = 5
    num_requests: int = 100
    replicas: tuple[int, int] = (1, 5)
    s_per_mib: tuple[float, float] = (0.2, 1.0)
    backlogs: tuple[int, int] = (0, 7)
    size_mib: tuple[float, float] = (0.0, 1.0)
    transfer_s: float = 1.0

    def __post_init__(self) -> None:
        sizes = {"all edges": self.num_all_edges, "edges": self.num_edges, "requests": self.num_requests}
        for name, value in sizes.items():
            if value < 1:
                raise ConfigError(f"{value} {name}", where="instances of assignment", allowed="1 or more")
        if self.num_edges > self.num_all_edges:
            raise ConfigError(
                f"a region of {self.num_edges} among {self.num_all_edges} edges",
                where="instances of assignment",
                allowed="at most as many edges as there are",
            )


def draw_instances(
    rng: np.random.Generator, config: InstanceConfig, num_instances: int
) -> AssignmentInstance:
    """A batch of instances; leaves [instances, ...]."""
    batch, num_edges = num_instances, config.num_edges
    all_xy = rng.uniform(size=(batch, config.num_all_edges, 2))
    replicas = rng.integers(*config.replicas, size=(batch, num_edges), endpoint=True)
    compute = np.zeros((batch, num_edges, 3))
    compute[..., 1] = rng.uniform(*config.s_per_mib, size=(batch, num_edges))
    edges = _with_backlogs(rng, config, all_xy, compute, replicas)
    shape = (batch, config.num_requests)
    source = rng.integers(num_edges, size=shape)
    predicted = rng.integers(config.num_all_edges, size=shape)
    requests = RoundRequests(
        source=source,
        predicted=np.where(predicted < num_edges, predicted, -1),
        predicted_xy=np.take_along_axis(all_xy, predicted[..., None], axis=1),
        input_mib=rng.uniform(*config.size_mib, size=shape),
        output_mib=rng.uniform(*config.size_mib, size=shape),
    )
    return AssignmentInstance(edges, requests, costs_of(edges, requests, config.transfer_s))


def costs_of(edges: Edges, requests: RoundRequests, transfer_s: float) -> Costs:
    """What the objective needs: computing by each edge's function, ways by size and distance.

    Args:
        edges: Leaves [*batch, Q].
        requests: Leaves [*batch, Z].
        transfer_s: Seconds of one MiB over one unit of distance.
    """
    source_xy = np.take_along_axis(edges.xy, requests.source[..., None], axis=-2)
    return Costs(
        work_s=compute_s(edges.compute, requests.input_mib) / edges.replicas[..., None, :],
        transfer_s=transfer_s * requests.input_mib[..., None] * _distance(source_xy, edges.xy),
        result_s=transfer_s * requests.output_mib[..., None] * _distance(requests.predicted_xy, edges.xy),
        source=requests.source,
        local_s=edges.local_s,
        arriving_s=edges.arriving_s,
        transferred_s=edges.transferred_s,
        returning_s=np.maximum(edges.local_result_s, edges.transferred_result_s),
    )


def compute_s(compute: np.ndarray, size_mib: np.ndarray) -> np.ndarray:
    """[*batch, Z, Q] seconds of requests of so many MiB [*batch, Z] on one replica of edges [*batch, Q, 3]."""
    constant, slope, square = np.moveaxis(compute[..., None, :, :], -1, 0)
    size_mib = size_mib[..., None]
    return constant + size_mib * (slope + size_mib * square)


def _with_backlogs(
    rng: np.random.Generator,
    config: InstanceConfig,
    all_xy: np.ndarray,
    compute: np.ndarray,
    replicas: np.ndarray,
) -> Edges:
    """The edges with the workload that drawn earlier requests are (equations 1-5)."""
    xy, most = all_xy[:, : config.num_edges], config.backlogs[1]
    shape = (*replicas.shape, most)

    def earlier() -> tuple[np.ndarray, np.ndarray]:
        num_backlogs = rng.integers(*config.backlogs, size=replicas.shape, endpoint=True)
        there = np.arange(most) < num_backlogs[..., None]
        return there, np.where(there, rng.uniform(*config.size_mib, size=shape), 0.0)

    def work_s(size_mib: np.ndarray) -> np.ndarray:
        constant, slope, square = np.moveaxis(compute[..., None, :], -1, 0)
        return (
            np.sum(size_mib * (slope + size_mib * square) + constant * (size_mib > 0.0), axis=-1) / replicas
        )

    def way_s(there: np.ndarray, size_mib: np.ndarray, num_ends: int) -> np.ndarray:
        end = rng.integers(num_ends, size=shape)
        end_xy = np.take_along_axis(all_xy, end.reshape(len(end), -1)[..., None], axis=1).reshape(*shape, 2)
        distance = np.linalg.norm(end_xy - xy[:, :, None], axis=-1)
        return np.max(config.transfer_s * size_mib * distance * there, axis=-1, initial=0.0)

    (is_local, local_mib), (is_sent, sent_mib) = earlier(), earlier()
    local_out, sent_out = (rng.uniform(*config.size_mib, size=shape) for _ in range(2))
    return Edges(
        xy,
        compute,
        replicas.astype(float),
        local_s=work_s(local_mib),
        arriving_s=way_s(is_sent, sent_mib, config.num_edges),
        transferred_s=work_s(sent_mib),
        local_result_s=way_s(is_local, local_out, config.num_all_edges),
        transferred_result_s=way_s(is_sent, sent_out, config.num_all_edges),
    )


def _distance(from_xy: np.ndarray, to_xy: np.ndarray) -> np.ndarray:
    """[*batch, Z, Q] between [*batch, Z, 2] and [*batch, Q, 2]."""
    difference = from_xy[..., :, None, :] - to_xy[..., None, :, :]
    return np.sqrt(np.square(difference).sum(axis=-1))
