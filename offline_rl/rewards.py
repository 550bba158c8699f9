"""Rewards of the papers, computed from a trajectory, in place of the problem's own.

    KaiS, dispatch         exp(-lambda - epsilon nu)            lambda: share of late ones of those settled in a slot
    KMPS, dispatch         w1 on_time - w2 late - w3 overload   shares of those settled, and of edge nodes
    KMPS, choice of nodes  b1 gain - b2 (1 - J)                 J: Jain's index of what nodes have in service
    KMPS, changes          m1 wanted - m2 unwanted              of a replica more, by the demand for each replica

with nu = 1 / (1 + exp(-xi)) and xi the deviation of the edge nodes' usage. A late request is settled when its deadline
passes. Requests dropped before they were dispatched belong to no decision and are not counted. A problem's own reward
credits every decision with what came of its own request; these credit a slot with what happened in it.
Sources: Han et al. 2021, section III-A.1; Huang et al., sections III-A.1 and III-B.4.
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.nn import sigmoid

from offline_rl.algorithm import Algorithm
from offline_rl.orchestration.advice import AdvisedObservation
from twin.contracts import Array, PyTree, Trajectory
from twin.orchestration.frames import FrameObservation
from twin.orchestration.slots import SLOT_NODE_FEATURES
from twin.placement.types import COMPLETED

Reward = Callable[[Trajectory], Array]
"""(trajectory) -> reward of every decision [T, seats, B]."""

_ROW = {feature.name: row for row, feature in enumerate(SLOT_NODE_FEATURES)}


@dataclass(frozen=True)
class DispatchReward:
    """A `Reward` of dispatchers, for what happens in a slot or for what becomes of the request dispatched in it.

    Attributes:
        by_decision: For the request, whenever that is known; else for the slot, known when it ends.
    """

    by_decision: bool = False

    def __call__(self, trajectory: Trajectory) -> Array:
        """[T, seats, B]."""
        raise NotImplementedError

    def settled(self, trajectory: Trajectory) -> Array:
        """[T, seats, B] bool: decisions whose reward is known."""
        return due(trajectory) if self.by_decision else trajectory.active


def rewarded(algorithm: Algorithm, reward: DispatchReward) -> Algorithm:
    """The algorithm, learning from another reward than the problem's."""

    def step(key: Array, state: PyTree, trajectory: Trajectory) -> tuple[PyTree, PyTree]:
        own = trajectory._replace(reward=reward(trajectory), settled=reward.settled(trajectory))
        return algorithm.step(key, state, own)

    return algorithm._replace(step=step)


@dataclass(frozen=True)
class KaisDispatchReward(DispatchReward):
    """`exp(-lambda - epsilon nu)`, the same for all seats.

    Attributes:
        epsilon: Weight of balance between edge nodes (KaiS figure 10: 0 to 4).
        by_decision: Lambda is 1 where the request dispatched becomes late, and 0 where it does not.
    """

    epsilon: float = 1.0

    def __call__(self, trajectory: Trajectory) -> Array:
        """[T, seats, B]."""
        cpu, memory, edge = _usage(trajectory)
        balance = sigmoid(0.5 * (_deviation(cpu, edge) + _deviation(memory, edge)))[:, None]
        if self.by_decision:
            return jnp.exp(-settled_by_decision(trajectory)[1] - self.epsilon * balance)
        on_time, late = (jnp.sum(one, axis=1, keepdims=True) for one in settled_in_slot(trajectory))
        team = jnp.exp(-late / jnp.maximum(on_time + late, 1.0) - self.epsilon * balance)
        return jnp.broadcast_to(team, trajectory.reward.shape)


@dataclass(frozen=True)
class KmpsDispatchReward(DispatchReward):
    """On time, less late, less overloaded; shares of the seat's requests, and of edge nodes.

    Attributes:
        on_time, late, overload: The weights; the paper names none.
        limit: Usage of cores or memory beyond which an edge node is overloaded.
        by_decision: On time or late is the request dispatched, not what is settled in the slot.
    """

    on_time: float = 1.0
    late: float = 1.0
    overload: float = 0.2
    limit: float = 0.85

    def __call__(self, trajectory: Trajectory) -> Array:
        """[T, seats, B]."""
        on_time, late = (settled_by_decision if self.by_decision else settled_in_slot)(trajectory)
        settled = jnp.maximum(on_time + late, 1.0)
        cpu, memory, edge = _usage(trajectory)
        above = edge * ((cpu > self.limit) | (memory > self.limit))
        overload = jnp.sum(above, axis=1) / jnp.maximum(jnp.sum(edge, axis=1), 1.0)
        gain = self.on_time * on_time - self.late * late
        return gain / settled - self.overload * overload[:, None]


@dataclass(frozen=True)
class KmpsNodeReward:
    """Requests on time more than in the frame before, for each that arrived, less imbalance.

    Attributes:
        gain, imbalance: The weights; the paper names none.
    """

    gain: float = 1.0
    imbalance: float = 0.1

    def __call__(self, trajectory: Trajectory) -> Array:
        """[T, H, B]; of an orchestrator's own trajectory."""
        outcome = trajectory.outcome
        share = outcome.on_time / jnp.maximum(outcome.arrived, 1.0)
        before = jnp.concatenate([share[:1], share[:-1]])
        busy = _frame(trajectory).node[:, 3]  # [T, nodes, H, B], of the frame before
        after = jnp.concatenate([busy[1:], busy[-1:]])
        squares = after.shape[1] * jnp.sum(after**2, axis=1)
        fairness = jnp.where(squares > 0.0, jnp.sum(after, axis=1) ** 2 / jnp.maximum(squares, 1e-9), 1.0)
        worth = self.gain * (share - before) - self.imbalance * (1.0 - fairness)
        return jnp.where(trajectory.settled, worth, 0.0)


@dataclass(frozen=True)
class KmpsChangeReward:
    """A replica more of a service in demand is worth something, of another one it costs.

    Attributes:
        wanted, unwanted: The weights; the paper names none.
    """

    wanted: float = 0.1
    unwanted: float = 0.1

    def __call__(self, trajectory: Trajectory) -> Array:
        """[T, H, B]; of an orchestrator's own trajectory."""
        replicas, *requests = jnp.moveaxis(jnp.expm1(_frame(trajectory).service[:, :, :, 0]), 1, 0)
        demand = sum(requests) / jnp.maximum(replicas, 1.0)  # [T, services, B]
        is_wanted = demand > jnp.mean(demand[:, 1:], axis=1, keepdims=True)
        change = trajectory.action.change
        service = jnp.clip(change, 0, demand.shape[1] - 1)
        adds = (change > 0) & (change < demand.shape[1])
        wanted = jnp.take_along_axis(is_wanted, service, axis=1)
        worth = jnp.where(wanted, self.wanted, -self.unwanted)
        return jnp.where(adds & trajectory.settled, worth, 0.0)


def settled_in_slot(trajectory: Trajectory) -> tuple[Array, Array]:
    """Numbers of requests [T, seats, B] that were answered on time in each slot, and that became late in it.

    A step of the trajectory counts what happens until the next one, be it a slot or, on a group's own clock, several.
    Every request counts at the seat that dispatched it; what is settled after the last slot counts nowhere.
    """
    known = trajectory.decision_info
    is_known = trajectory.active & trajectory.settled
    late_s, on_time = _on_time(trajectory)
    when_s = jnp.where(on_time, trajectory.outcome.finish_s, late_s)
    passes = trajectory.elapsed_s > 0.0  # else padding
    num_slots = passes.shape[0]
    begin_s = jnp.where(passes, known.clock_s[:, 0], jnp.inf)  # [T, B]
    is_seen = is_known & (when_s <= _end_s(trajectory)[None, None])
    before = jax.vmap(jnp.searchsorted, in_axes=-1, out_axes=-1)(begin_s, jnp.where(is_seen, when_s, 0.0))
    slot = jnp.where(is_seen, jnp.maximum(before - 1, 0), num_slots).astype(jnp.int32)
    seat, stream = jnp.arange(slot.shape[1])[None, :, None], jnp.arange(slot.shape[2])[None, None]

    def counted(mask: Array) -> Array:
        nothing = jnp.zeros((num_slots, *slot.shape[1:]))
        return nothing.at[slot, seat, stream].add(mask.astype(jnp.float32), mode="drop")

    return counted(on_time), counted(is_known & ~on_time)


def settled_by_decision(trajectory: Trajectory) -> tuple[Array, Array]:
    """[T, seats, B] 1 where the request dispatched is answered on time, and where it becomes late; 0 if not `due`."""
    is_due, on_time = due(trajectory), _on_time(trajectory)[1]
    return (is_due & on_time).astype(jnp.float32), (is_due & ~on_time).astype(jnp.float32)


def due(trajectory: Trajectory) -> Array:
    """[T, seats, B] bool: decisions on requests whose deadline passes before the trajectory ends.

    Which these are does not depend on what was decided. Of later deadlines the requests that are answered soon would be
    known, and those that a choice has made wait would not.
    """
    return trajectory.active & (_on_time(trajectory)[0] <= _end_s(trajectory)[None, None])


def _on_time(trajectory: Trajectory) -> tuple[Array, Array]:
    """When requests become late, and whether they are known to be answered before; [T, seats, B]."""
    known, came = trajectory.decision_info, trajectory.outcome
    late_s = known.arrival_s + known.deadline_s
    answered = trajectory.active & trajectory.settled & (came.status == COMPLETED)
    return late_s, answered & (came.finish_s <= late_s)


def _end_s(trajectory: Trajectory) -> Array:
    """[B] when the last step ends."""
    end_s = trajectory.decision_info.clock_s[:, 0] + trajectory.elapsed_s
    return jnp.max(jnp.where(trajectory.elapsed_s > 0.0, end_s, -jnp.inf), axis=0)


def _frame(trajectory: Trajectory) -> FrameObservation:
    """What an orchestrator observes of frames, with advice or without."""
    seen = trajectory.observation
    return seen.frame if isinstance(seen, AdvisedObservation) else seen


def _usage(trajectory: Trajectory) -> tuple[Array, Array, Array]:
    """Use of cores and of memory for replicas after each slot, and 1 for edge nodes; [T, nodes, B]."""
    seen = trajectory.global_observation
    node = (seen["dispatch"] if isinstance(seen, dict) else seen).node[1:, :, :, 0]
    cpu = 1.0 - node[:, _ROW["free_cpu_cores"]]
    memory = 1.0 - node[:, _ROW["free_replica_memory"]]
    return cpu, memory, 1.0 - node[:, _ROW["is_cloud"]]


def _deviation(usage: Array, edge: Array) -> Array:
    """[T, B] standard deviation over edge nodes."""
    count = jnp.maximum(jnp.sum(edge, axis=1, keepdims=True), 1.0)
    mean = jnp.sum(usage * edge, axis=1, keepdims=True) / count
    return jnp.sqrt(jnp.sum(edge * (usage - mean) ** 2, axis=1) / count[:, 0])
