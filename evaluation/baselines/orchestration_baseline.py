"""The type of orchestration baselines: rules that choose once a frame which replicas to add and to remove."""

from collections.abc import Callable
from dataclasses import dataclass

from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.orchestrator import Orchestrate


@dataclass(frozen=True)
class OrchestrationBaseline:
    """A heuristic to compare learned orchestration with.

    Attributes:
        name: Name in tables and on the command line.
        description: One sentence.
        rule: Returns the rule for an instance of slot mode.
    """

    name: str
    description: str
    rule: Callable[[EdgeCloud, FrameConfig], Orchestrate]
