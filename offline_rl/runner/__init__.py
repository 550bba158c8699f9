"""Runs an exported policy with NumPy alone, or ONNX Runtime where it is installed. No JAX, no Arrow."""

from offline_rl.runner.descriptions import Decision, Explanation, Held, Node, OutOfRange, Request
from offline_rl.runner.ledger import Ledger
from offline_rl.runner.loading import load, load_network, load_queue
from offline_rl.runner.network import NOTHING_LEGAL, ExportedPolicy
from offline_rl.runner.policy import Policy
from offline_rl.runner.queue import QueuePolicy
from offline_rl.runner.queue_descriptions import RunningJob, UserPast, WaitingJob

__all__ = [
    "NOTHING_LEGAL",
    "Decision",
    "Explanation",
    "ExportedPolicy",
    "Held",
    "Ledger",
    "Node",
    "OutOfRange",
    "Policy",
    "QueuePolicy",
    "Request",
    "RunningJob",
    "UserPast",
    "WaitingJob",
    "load",
    "load_network",
    "load_queue",
]
