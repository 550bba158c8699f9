"""What a baseline of orchestration is: a rule that says once a frame which replicas to add and to remove."""

from collections.abc import Callable
from dataclasses import dataclass

from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.orchestrating import Orchestrate


@dataclass(frozen=True)
class OrchestrationBaseline:
    """A rule of thumb that every learned orchestration has to beat.

    Attributes:
        name: As in tables and on the command line.
        description: One sentence.
        rule: Makes the rule for an instance of slot mode.
    """

    name: str
    description: str
    rule: Callable[[EdgeCloud, FrameConfig], Orchestrate]
