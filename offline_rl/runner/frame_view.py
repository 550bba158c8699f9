"""Inputs of an orchestrator in NumPy for a frame, and of its network. Needs NumPy only.

The same numbers as `twin.orchestration.frames` observes and `offline_rl.orchestration.view` reads, for one system.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from offline_rl.runner.frame_network import Chosen, Frame


class OrchestrationTables(NamedTuple):
    """What is fixed and known of a cluster; services without the unknown one."""

    cores: np.ndarray  # [nodes]
    memory_gib: np.ndarray  # [nodes]
    is_cloud: np.ndarray  # [nodes] bool
    site_of_node: np.ndarray  # [nodes]
    seat_of_site: np.ndarray  # [sites] access point of a site, -1 where it has none
    hosts: np.ndarray  # [services, nodes] bool
    replica_gib: np.ndarray  # [services]
    work_s: np.ndarray  # [services] mean declared work
    pull_s: np.ndarray  # [services, nodes]
    run_s: np.ndarray  # [services, nodes] expected run of a request
    busy: np.ndarray  # [bins, services] replicas that are expected to be in service, by the time of day
    bin_s: np.ndarray  # [] length of a bin
    frame_s: np.ndarray  # [] from one frame to the next
    lead_s: np.ndarray  # [] how far ahead is planned
    plan: np.ndarray  # [5] `frame_plan.PlanNumbers`


NOT_MEASURED = np.zeros((0, 1), np.float32)
"""Loads of no frame at all."""


class FrameView(NamedTuple):
    """What is known as a frame begins; services without the unknown one, loads are means over a frame, NaN where
    they are not known.
    """

    time_of_day_s: float | np.ndarray
    up: np.ndarray  # [nodes] bool
    replicas: np.ndarray  # [services, nodes] that can serve
    adding: np.ndarray  # [services, nodes] that are being added
    removing: np.ndarray  # [services, nodes] of the replicas that are to go when they are idle
    running: np.ndarray  # [services, nodes] requests in service
    waiting: np.ndarray  # [services, nodes] requests waiting there, or on their way
    queued: np.ndarray  # [services, access points]
    busy: np.ndarray = NOT_MEASURED  # [frames, services] in service in the last frames, the latest last
    requests: np.ndarray = NOT_MEASURED  # [frames, services] those and the waiting and queued ones

    def specified(self) -> np.ndarray:
        """[services] replicas as requested."""
        return np.asarray((self.replicas + self.adding - self.removing).sum(axis=1))

    def removable(self) -> np.ndarray:
        """[services, nodes] replicas that are not being removed yet."""
        return self.replicas - self.removing

    def used_gib(self, tables: OrchestrationTables) -> np.ndarray:
        """[nodes] memory of replicas, those being added included."""
        return np.asarray(tables.replica_gib @ (self.replicas + self.adding), np.float32)


def frame_of(tables: OrchestrationTables, view: FrameView, advice: Chosen) -> Frame:
    """The input of the network."""
    cores, free_gib = tables.cores, tables.memory_gib - view.used_gib(tables)
    running, waiting = view.running.sum(axis=0), view.waiting.sum(axis=0)
    node = [
        view.up,
        free_gib / np.maximum(tables.memory_gib, 1e-9),
        np.log1p(view.replicas.sum(axis=0)),
        running / cores,
        np.log1p(waiting / cores),
        tables.is_cloud,
        np.log1p(cores),
        np.log1p(tables.memory_gib),
    ]
    has_seat = tables.seat_of_site >= 0
    at_site = view.queued[:, np.maximum(tables.seat_of_site, 0)] * has_seat
    service = [
        np.log1p(np.maximum(view.specified(), 0.0)),
        np.log1p(view.running.sum(axis=1)),
        np.log1p(view.waiting.sum(axis=1)),
        np.log1p(view.queued.sum(axis=1)),
        np.log1p(tables.replica_gib),
        np.log1p(tables.work_s),
    ]
    share = tables.replica_gib[:, None] / np.maximum(tables.memory_gib, 1e-9)
    pair = [
        np.log1p(view.replicas),
        np.log1p(view.running),
        np.log1p(view.waiting),
        np.log1p(at_site)[:, tables.site_of_node],
        share,
        np.log1p(tables.pull_s),
        _signs(advice, view.replicas.shape),
    ]
    adds = tables.hosts & (tables.replica_gib[:, None] <= free_gib + 1e-4) & view.up
    able = np.stack([adds, view.removable() > 0.0])
    point = [np.log1p(at_site.sum(axis=0)), has_seat]
    return Frame(_stacked(node), _stacked(point), _stacked(service), _stacked(pair), able, view.up)


def _stacked(rows: Sequence[np.ndarray]) -> np.ndarray:
    return np.stack(np.broadcast_arrays(*rows)).astype(np.float32)


def advice_scores(sharpness: float, frame: Frame, made: np.ndarray) -> np.ndarray:
    """[2W + 1, nodes] scores of changes by the advice that is left, as by `orchestration.advice.advice_left`."""
    advice, wanted, done = frame.pair[-1], np.abs(frame.pair[-1]), np.abs(made)
    left = advice * ((done < wanted) & (done.sum(axis=1) < wanted.sum(axis=1))[:, None])
    none = np.full((1, left.shape[1]), not left.any())
    return np.float32(sharpness) * np.concatenate([none, left > 0.0, left < 0.0]).astype(np.float32)


def _signs(advice: Chosen, shape: tuple[int, ...]) -> np.ndarray:
    """[services, nodes] 1 for every replica more that is advised, -1 for every one less."""
    signs = np.zeros(shape, np.float32)
    for node, change in zip(advice.node.tolist(), advice.change.tolist(), strict=True):
        if change:
            adds = change <= shape[0]
            signs[(change - 1) % shape[0], node] += 1.0 if adds else -1.0
    return signs
