"""Slot mode of the ground truth: the world of KaiS and KMPS, with the CPU leak repaired and a finite cloud.

Requests queue at access points; every slot each access point sends one of them to a node of its own site, of another
one or of the cloud, where a replica of its service serves it or it is dropped late; once in a frame the deployment of
replicas may change. It is an `Environment` like any other, with a seat for every access point: `slot_environment`.
"""

from evaluation.simulator.slots.environment import slot_environment
from evaluation.simulator.slots.worlds import time_scaled
from twin.orchestration.config import Power, SlotConfig
from twin.orchestration.counts import Counts
from twin.orchestration.deployment import Deployment, Orchestration
from twin.orchestration.dequeue import DELAY_GREEDY, FIFO, HYBRID, Dequeue
from twin.orchestration.mechanics import Orchestrator
from twin.orchestration.slots import SlotState

__all__ = [
    "DELAY_GREEDY",
    "FIFO",
    "HYBRID",
    "Counts",
    "Deployment",
    "Dequeue",
    "Orchestration",
    "Orchestrator",
    "Power",
    "SlotConfig",
    "SlotState",
    "slot_environment",
    "time_scaled",
]
