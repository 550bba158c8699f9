"""Orchestration of the ground truth: one decision a frame, a whole frame of dispatching in between.

`frame_environment` wraps slot mode (`evaluation.simulator.slots`): an orchestrator chooses H nodes and adds or removes
a replica on each, then a frozen dispatch policy plays every slot until the next frame.
"""

from evaluation.simulator.frames.environment import frame_environment
from evaluation.simulator.slots.instance import deployed_on
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, observing
from twin.orchestration.frame_state import FrameState, Scaling, specified
from twin.orchestration.frames import few_waiting, on_time_share

__all__ = [
    "Dispatch",
    "FrameConfig",
    "FrameState",
    "Scaling",
    "deployed_on",
    "few_waiting",
    "frame_environment",
    "observing",
    "on_time_share",
    "specified",
]
