"""A controller between a cluster and whoever tests it, who says what its orchestrator chooses."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from offline_rl.kube_controller.controller import ControllerConfig, FrameController, FrameResult
from offline_rl.kube_controller.kubernetes import Access, KubernetesCluster
from offline_rl.kube_controller.leading import Leading
from offline_rl.kube_controller.recording import FrameMetrics, Recording
from offline_rl.runner.frame_network import Chosen
from offline_rl.runner.frame_view import FrameView
from offline_rl.runner.orchestrator import OrchestratorFacts
from tests.kube_controller.stand_in import NAMESPACE, StandIn

FACTS = OrchestratorFacts(("n0", "n1"), ("ocr", "asr"), ("site",), 25.0, 3, 2, 1, True, 5.0)
NOW_S = 1_700_000_000.0
MORE_OCR, LESS_OCR, MORE_ASR, NOTHING = 1, 3, 2, 0
"""Changes as the orchestrator counts them."""


def access(api: StandIn) -> Access:
    return Access(api.url, namespace=NAMESPACE, timeout_s=1.0)


def asked(api: StandIn) -> dict[str, int]:
    return {name: one["asked"] for name, one in api.deployments.items()}


class Bench:
    """A controller that is told what to choose, and the loads that it is shown."""

    def __init__(self, access: Access, folder: Path, applies: bool = True) -> None:
        self.loads, self.chosen = folder / "loads.json", Chosen(np.array([0]), np.array([0]))
        self.seen: list[FrameView] = []
        self.report()
        self.cluster = KubernetesCluster(access)
        self.now_s, self.forward_s = NOW_S, 0.0
        decides: Any = SimpleNamespace(facts=FACTS, decide=self._decide)
        self.recording, self.metrics = Recording(folder / "log", "hash"), FrameMetrics()
        self.controller = FrameController(
            decides,
            self.cluster,
            ControllerConfig(str(self.loads), applies),
            self.leading("me"),
            self.recording,
            self.metrics,
            lambda: self.now_s,
        )

    def leading(self, name: str) -> Leading:
        return Leading(self.cluster, name, 50.0, lambda: self.forward_s)

    def report(self, time_s: float = NOW_S, **loads: dict[str, dict[str, float]]) -> None:
        self.loads.write_text(json.dumps({"time_s": time_s} | loads))

    def frame(self, *changes: tuple[int, int]) -> FrameResult:
        """One frame in which (node, change) are chosen."""
        self.chosen = Chosen(*(np.array(one) for one in zip(*changes, strict=True)))
        return self.controller.frame()

    def _decide(self, view: FrameView) -> Chosen:
        self.seen.append(view)
        return self.chosen
