"""Centralised dispatch: one place decides for all access points, sees every node in full, and decides late.

What an access point sees takes time to go up, and the decision to come back: a request leaves `delay_s` after it could
have been sent, for the node that was best `delay_s` ago. Requests do not wait for one another meanwhile. So the delay
is a part of the way: a decision is made at once, and its request is underway for `delay_s` more.

Source: Han et al. 2021, figure 8c; Huang et al., figure 12.
"""

from twin.contracts import Array, Policy, Problem, PyTree
from twin.orchestration.chance import Chance, SlotAnswer
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_mechanics import Dispatch
from twin.orchestration.slots import slot_problem
from twin.placement.types import Requests


def in_full(problem: Problem) -> Problem:
    """The slot problem in which every seat sees all nodes, not other sites by their means."""
    return problem._replace(observe=problem.observe_global)


def centrally(case: EdgeCloud, policy: Policy) -> Dispatch:
    """A policy that sees all nodes in full, as a way to dispatch."""
    problem = in_full(slot_problem(case))
    return lambda key, state, legal: policy(key, problem.observe(state), legal)


def late(chance: Chance, delay_s: float | Array) -> Chance:
    """The chance of requests that leave `delay_s` (>= 0) after it was decided where they go."""

    def answer(numbers: PyTree, request: Requests, node: Array) -> SlotAnswer:
        usual = chance.answer(numbers, request, node)
        return usual._replace(way_there_s=usual.way_there_s + delay_s)

    return chance._replace(answer=answer)
