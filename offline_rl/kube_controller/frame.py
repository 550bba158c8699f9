"""The changes of a frame: what is known as arrays, what is wanted as writes, and all of the writes or none.

A replica goes only when it is idle: the requests of its service on its node, served or waiting on average of the last
frame, leave a whole replica free; and where the last one would go, no request was served at all. The last one anywhere
stays while requests of its service are queued, and where loads do not name a service on a node, nothing is known to be
idle. Until then the removal waits. Before the first write of a frame every write is tried without effect; where a later
one fails all the same, those before it are taken back.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from offline_rl.kube_controller.cluster import ClusterError, Hosted, ScalableCluster, UnreachableError
from offline_rl.kube_controller.loads import Loads, PastLoads
from offline_rl.runner.frame_network import Chosen
from offline_rl.runner.frame_view import FrameView
from offline_rl.runner.orchestrator import OrchestratorFacts

Place = tuple[int, int]
"""Service and node, as indices of a bundle's names."""


@dataclass(frozen=True)
class Write:
    """One change of one Deployment's scale."""

    hosted: Hosted
    replicas: int

    @property
    def step(self) -> int:
        """How many replicas more."""
        return self.replicas - self.hosted.desired


@dataclass
class WaitingRemovals:
    """Removals that wait until a replica is idle: place -> how many."""

    removals: dict[Place, int] = field(default_factory=dict)

    def add(self, place: Place) -> None:
        """One more."""
        self.removals[place] = self.removals.get(place, 0) + 1

    def drop(self, place: Place) -> None:
        """One less."""
        self.removals[place] = self.removals.get(place, 0) - 1
        if self.removals[place] <= 0:
            del self.removals[place]


def places_of(facts: OrchestratorFacts, hosted: Sequence[Hosted]) -> dict[Place, Hosted]:
    """A cluster's Deployments as the bundle names them, by place; ClusterError where two are of one place."""
    services = {name: row for row, name in enumerate(facts.services)}
    nodes = {name: row for row, name in enumerate(facts.nodes)}
    found: dict[Place, Hosted] = {}
    for one in hosted:
        if one.service not in services or one.node not in nodes:
            continue
        known = found.setdefault((services[one.service], nodes[one.node]), one)
        if known is not one:
            raise ClusterError(
                f"two deployments hold service {one.service} on node {one.node}",
                where=f"deployments {known.name}, {one.name}",
                allowed="one of each service on a node",
                advice="take the labels off the other one, which nobody is to scale",
            )
    return found


def view_of(
    facts: OrchestratorFacts,
    places: Mapping[Place, Hosted],
    up: Mapping[str, bool],
    loads: Loads,
    past: PastLoads,
    waiting: WaitingRemovals,
    time_of_day_s: float,
) -> FrameView:
    """What the orchestrator observes of the cluster."""
    shape = len(facts.services), len(facts.nodes)
    replicas, adding, removing = (np.zeros(shape, np.float32) for _ in range(3))
    for place, one in places.items():
        replicas[place] = min(one.ready, one.desired)
        adding[place] = max(one.desired - one.ready, 0)
        removing[place] = min(waiting.removals.get(place, 0), replicas[place])
    is_up = np.array([up.get(name, False) for name in facts.nodes])
    return FrameView(
        time_of_day_s, is_up, replicas, adding, removing, loads.running, loads.waiting, loads.queued,
        past.busy.copy(), past.requests.copy(),
    )  # fmt: skip


def writes_of(
    chosen: Chosen,
    facts: OrchestratorFacts,
    places: Mapping[Place, Hosted],
    loads: Loads,
    waiting: WaitingRemovals,
    max_changes: int,
) -> tuple[list[Write], list[str]]:
    """The writes of a frame, and in words what was chosen and cannot be written.

    Removals enter `waiting`, and those of them that can be made leave it; a frame writes `max_changes` at most.
    """
    num_services, left_out = len(loads.running), []
    wanted: dict[Place, int] = {}
    for node, change in zip(chosen.node.tolist(), chosen.change.tolist(), strict=True):
        place = (change - 1) % num_services, node
        if change and place not in places:
            service, host = facts.services[place[0]], facts.nodes[node]
            left_out.append(f"no deployment of service {service} on node {host}")
        elif 0 < change <= num_services:
            wanted[place] = wanted.get(place, 0) + 1
        elif change and not loads.is_named[place]:
            service, host = facts.services[place[0]], facts.nodes[node]
            left_out.append(f"the loads do not name service {service} on node {host}: none goes")
        elif change:
            waiting.add(place)
    for place in list(waiting.removals):
        if place not in places or places[place].desired == 0:
            waiting.removals.pop(place)
        elif place not in wanted and is_idle(places[place], loads, place):
            going = {*(one for one, step in wanted.items() if step < 0), place}
            if loads.queued[place[0]].sum() == 0.0 or _ready_without(going, places, place[0]) > 0:
                wanted[place] = -1
    within = list(wanted.items())[:max_changes]
    left_out += [f"over the limit of {max_changes} changes a frame"] * (len(wanted) - len(within))
    return [Write(places[place], places[place].desired + step) for place, step in within], left_out


def is_idle(hosted: Hosted, loads: Loads, place: Place) -> bool:
    """Whether a replica can go without anybody noticing."""
    if not loads.is_named[place]:
        return False
    busy = float(loads.running[place] + loads.waiting[place])
    if hosted.desired <= 1:
        return busy == 0.0
    return hosted.ready >= hosted.desired and busy <= hosted.desired - 1.0


def _ready_without(going: Collection[Place], places: Mapping[Place, Hosted], service: int) -> int:
    """Replicas of a service that can serve once one has gone from each of some places."""
    return sum(
        max(min(one.ready, one.desired - (place in going)), 0)
        for place, one in places.items()
        if place[0] == service
    )


def make(cluster: ScalableCluster, writes: Sequence[Write], note: Callable[[str], None]) -> None:
    """Makes all writes of a frame, or none.

    Args:
        cluster: Where.
        writes: What.
        note: Called with what could not be taken back.

    Raises:
        ClusterError: One of them cannot be made; nothing has changed, as far as the cluster lets that be.
    """
    for write in writes:
        cluster.scale(write.hosted.name, write.replicas, write.hosted.version, only_try=True)
    made: list[Write] = []
    for write in writes:
        try:
            cluster.scale(write.hosted.name, write.replicas, write.hosted.version, only_try=False)
        except ClusterError as error:
            unknown = [write] if isinstance(error, UnreachableError) else []
            _take_back(cluster, [*made, *unknown], note)
            raise
        made.append(write)


def _take_back(cluster: ScalableCluster, made: Sequence[Write], note: Callable[[str], None]) -> None:
    """Undoes writes, last first, unless somebody else has changed the object since."""
    for write in reversed(made):
        name = write.hosted.name
        try:
            if cluster.desired(name) == write.replicas:
                cluster.scale(name, write.hosted.desired, None, only_try=False)
        except ClusterError as error:
            note(f"deployment {name} could not be set back to {write.hosted.desired}: {error.what}")
