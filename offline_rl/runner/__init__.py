"""Runs an exported policy with NumPy alone, or ONNX Runtime where it is installed. No JAX, no Arrow."""

from offline_rl.runner.descriptions import Decision, Explanation, Held, Node, OutOfRange, Request
from offline_rl.runner.network import NOTHING_LEGAL, ExportedPolicy, load

__all__ = [
    "NOTHING_LEGAL",
    "Decision",
    "Explanation",
    "ExportedPolicy",
    "Held",
    "Node",
    "OutOfRange",
    "Request",
    "load",
]
