"""What a controller writes down: the deployment in this project's own table, how every frame went, and metrics.

    LOG/replicas/replicas-*.csv     `schedtwin import native LOG/replicas --out ARCHIVE` reads them
    LOG/frames/frames-*.csv         what was decided and what became of it

The first frame of a process writes every count; after that only those that have changed. Whatever writes raises OSError
where the disk is full or cannot be written; counts that were not written are written with the next ones.
"""

from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from offline_rl.kube_controller.cluster import Hosted
from offline_rl.kube_controller.frame import Write
from offline_rl.serving.journal import Journal

REPLICA_COLUMNS = ("service", "node_id", "num_replicas", "time")
FRAME_COLUMNS = ("time", "outcome", "reason", "changes", "left_out", "took_s", "bundle")


class Recording:
    """The log of one controller.

    Args:
        folder: LOG; None keeps none.
        bundle: Content hash of the bundle that decides.
    """

    def __init__(self, folder: Path | None, bundle: str) -> None:
        self._bundle, self._known = bundle, dict[tuple[str, str], int]()
        self._replicas = None if folder is None else Journal(folder / "replicas", "replicas", REPLICA_COLUMNS)
        self._frames = None if folder is None else Journal(folder / "frames", "frames", FRAME_COLUMNS)

    def deployment(self, hosted: list[Hosted], now_s: float) -> None:
        """Writes the replicas that can serve, where their number is new."""
        found = {(one.service, one.node): min(one.ready, one.desired) for one in hosted}
        gone = {place: 0 for place in self._known if place not in found}
        new = {place: count for place, count in (found | gone).items() if self._known.get(place) != count}
        if new and self._replicas is not None:
            self._replicas.write([(*place, count, _instant(now_s)) for place, count in sorted(new.items())])
        self._known = found

    def frame(
        self, now_s: float, outcome: str, reason: str, writes: list[Write], left_out: list[str], took_s: float
    ) -> None:
        """Writes how a frame went."""
        if self._frames is not None:
            changes = [f"{one.hosted.service}@{one.hosted.node}:{one.step:+d}" for one in writes]
            row = (_instant(now_s), outcome, reason, changes, left_out, took_s, self._bundle)
            self._frames.write([row])

    def close(self) -> None:
        """Closes and compresses the open files."""
        with ExitStack() as open_files:
            for journal in (self._frames, self._replicas):
                if journal is not None:
                    open_files.callback(journal.close)  # also where the other one cannot be closed


class FrameMetrics:
    """What a controller counts, in Prometheus' text format."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge

        self.registry: Any = CollectorRegistry()
        known: dict[str, Any] = {"registry": self.registry}
        self.frames = Counter("schedtwin_frames", "Frames, by outcome.", ("outcome",), **known)
        self.failures = Counter(
            "schedtwin_frame_failures", "Frames that failed, by kind.", ("kind",), **known
        )
        self.changes = Counter(
            "schedtwin_replica_changes", "Changes of desired replicas, by direction.", ("direction",), **known
        )
        self.log_errors = Counter("schedtwin_log_errors", "Failed writes of the log.", **known)
        self.removals_waiting = Gauge(
            "schedtwin_removals_waiting", "Removals that wait until a replica is idle.", **known
        )
        self.leads = Gauge("schedtwin_leads", "1 where this controller leads.", **known)


def _instant(now_s: float) -> str:
    return datetime.fromtimestamp(now_s, UTC).isoformat()
