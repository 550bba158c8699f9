"""Frame by frame: look, decide, write down, change; what fails changes nothing and is tried again in the next frame."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from logs_schema.calendar import DAY_S
from logs_schema.errors import ConfigError, SchedtwinError, first
from offline_rl.errors import PolicyInputError
from offline_rl.kube_controller.cluster import NODE, SERVICE, ClusterError, Hosted, ScalableCluster
from offline_rl.kube_controller.frame import WaitingRemovals, Write, make, places_of, view_of, writes_of
from offline_rl.kube_controller.leading import Leading
from offline_rl.kube_controller.loads import LoadsError, PastLoads, read_loads
from offline_rl.kube_controller.recording import FrameMetrics, Recording
from offline_rl.runner.orchestrator import Orchestrator, OrchestratorFacts


@dataclass(frozen=True)
class ControllerConfig:
    """How a controller works.

    Attributes:
        loads: Where loads are reported (`offline_rl.kube_controller.loads`).
        applies: Write scales; otherwise a frame is decided and logged, and ends where it would write.
        max_changes: Deployments that a frame may change.
        midnight_s: When the days of the training log begin, after midnight UTC.
    """

    loads: str
    applies: bool = False
    max_changes: int = 2
    midnight_s: float = 0.0

    def __post_init__(self) -> None:
        if self.max_changes < 1:
            raise ConfigError(f"{self.max_changes} changes", where="--max-changes", allowed="1 or more")


class FrameResult(NamedTuple):
    """What became of a frame; `follows`: another controller leads."""

    outcome: Literal["changed", "nothing_to_change", "dry_run", "paused", "follows", "failed"]
    reason: str
    writes: list[Write]
    left_out: list[str]

    def to_json(self) -> dict[str, Any]:
        """The frame as JSON values."""
        changes = [
            {
                "service": one.hosted.service,
                "node": one.hosted.node,
                "from": one.hosted.desired,
                "to": one.replicas,
            }
            for one in self.writes
        ]
        return {"outcome": self.outcome, "reason": self.reason, "changes": changes, "left_out": self.left_out}


class FrameController:
    """One controller.

    Args:
        orchestrator: Who decides.
        cluster: About what.
        config: See `ControllerConfig`.
        leading: Its candidacy.
        recording: Its log.
        metrics: What it counts.
        clock_s: Seconds since 1970.
    """

    def __init__(
        self,
        orchestrator: Orchestrator,
        cluster: ScalableCluster,
        config: ControllerConfig,
        leading: Leading,
        recording: Recording,
        metrics: FrameMetrics,
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self._orchestrator, self._cluster, self._config = orchestrator, cluster, config
        self._leading, self._recording, self.metrics, self._clock_s = leading, recording, metrics, clock_s
        self._waiting, self._has_said_lost = WaitingRemovals(), False
        self._past = PastLoads(orchestrator.facts)

    def frame(self) -> FrameResult:
        """Decides and makes the changes of one frame; never raises what cluster, loads or log do wrong."""
        now_s, begun_s = self._clock_s(), time.monotonic()
        self._past.begin()
        try:
            frame = self._decided(now_s)
        except (ClusterError, LoadsError, PolicyInputError) as error:
            self.metrics.failures.labels(getattr(error, "kind", type(error).__name__)).inc()
            frame = FrameResult("failed", str(error), [], [])
            _say(error.what)
        self.metrics.frames.labels(frame.outcome).inc()
        self.metrics.removals_waiting.set(sum(self._waiting.removals.values()))
        took_s = time.monotonic() - begun_s
        self._log(lambda: self._recording.frame(now_s, *frame, took_s=took_s))
        return frame

    def run(
        self, is_over: Callable[[float], bool], tell: Callable[[FrameResult], None] = lambda _frame: None
    ) -> None:
        """A frame every `frame_s`, reported, until `is_over(seconds)`, which waits that long, says so; then resigns."""
        frame_s, next_s = self._orchestrator.facts.frame_s, time.monotonic()
        try:
            while not is_over(max(0.0, next_s - time.monotonic())):
                tell(self.frame())
                next_s = max(next_s + frame_s, time.monotonic())
        finally:
            try:  # first of all, so that another one can lead whatever becomes of the log
                if self._config.applies:
                    self._leading.resign()
            except SchedtwinError as error:
                _say(error.what)
            self._log(self._recording.close)

    def _log(self, write: Callable[[], None]) -> None:
        """Logs something; a log that cannot be written (a full disk) is counted and said once, and stops no frame."""
        try:
            write()
        except OSError as error:
            self.metrics.log_errors.inc()
            if not self._has_said_lost:
                _say(f"the log cannot be written, frames go on without it: {error}")
            self._has_said_lost = True

    def _decided(self, now_s: float) -> FrameResult:
        leads = not self._config.applies or self._leading.leads()  # without writes there is nothing to lead
        self.metrics.leads.set(leads)
        if not leads or self._leading.is_paused:
            self._waiting.removals.clear()  # whoever leads, and when it goes on, decides anew
        if not leads:
            return FrameResult("follows", "another controller leads", [], [])
        facts, config = self._orchestrator.facts, self._config
        hosted = self._cluster.hosted()
        self._log(lambda: self._recording.deployment(hosted, now_s))
        if self._leading.is_paused:
            return FrameResult("paused", "the lease says so", [], [])
        places = places_of(facts, hosted)
        if not places:
            raise _other_cluster(facts, hosted)
        loads = read_loads(config.loads, facts, now_s)
        self._past.measured(loads)
        time_of_day_s = (now_s - config.midnight_s) % DAY_S
        view = view_of(
            facts, places, self._cluster.nodes_up(), loads, self._past, self._waiting, time_of_day_s
        )
        chosen = self._orchestrator.decide(view)
        waiting = WaitingRemovals(dict(self._waiting.removals))
        writes, left_out = writes_of(chosen, facts, places, loads, waiting, config.max_changes)
        if not config.applies:
            return FrameResult("dry_run", "", writes, left_out)
        make(self._cluster, writes, _say)
        self._made(writes, waiting, {one.name: place for place, one in places.items()})
        return FrameResult("changed" if writes else "nothing_to_change", "", writes, left_out)

    def _made(
        self, writes: list[Write], waiting: WaitingRemovals, place_of: dict[str, tuple[int, int]]
    ) -> None:
        """Remembers what a frame has come to."""
        for write in writes:
            self.metrics.changes.labels("more" if write.step > 0 else "less").inc(abs(write.step))
            if write.step < 0:
                waiting.drop(place_of[write.hosted.name])
        self._waiting = waiting


def _other_cluster(facts: OrchestratorFacts, hosted: list[Hosted]) -> ClusterError:
    found = first(dict.fromkeys(f"{one.service} on {one.node}" for one in hosted)) if hosted else "none"
    return ClusterError(
        f"no deployment with the labels {SERVICE} and {NODE} is of the bundle's services and nodes",
        where=found,
        allowed=f"services {first(facts.services)}; nodes {first(facts.nodes)}",
        advice="label the deployments, or train and export for this cluster: the plan is bound to its names",
    )


def _say(sentence: str) -> None:
    print(f"schedtwin orchestrate: {sentence}", file=sys.stderr, flush=True)
