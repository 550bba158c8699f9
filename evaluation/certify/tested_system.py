"""The system under test of a certificate: any model of outcomes, a learned twin or the simulated truth itself."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax

from offline_rl.networks import Actor
from twin.contracts import Array, PyTree
from twin.placement.encoding import Encoding
from twin.placement.learned import AnswerModel, learned_answers
from twin.placement.model import PlacementTwin
from twin.placement.responses import Answers
from twin.placement.windows import Windows


class SystemUnderTest(NamedTuple):
    """The system that a certificate compares with the log."""

    encoding: Encoding
    windows: Windows  # of the training days, for the clone of the behaviour
    model: PyTree  # arrays that the answers depend on, an argument of every compiled program
    answers: Callable[[PyTree], Answers]  # the memory of an answer must not depend on the answers before it
    num_members: int  # streams are divided among the members in equal consecutive shares
    one_member: Callable[[PyTree, Array], PyTree] = lambda model, _: (
        model
    )  # the model of a member (its index) alone


def seen_in_full(tested: SystemUnderTest) -> SystemUnderTest:
    """The same system with every node shown to the clone of the logged behaviour, whatever policies are shown.

    A scheduler that read the load of all nodes cannot be cloned from summaries of other sites: the clone's own
    probabilities would be right on average and its decisions worse, in the true system as in the twin.
    """
    problem = replace(tested.encoding.problem, view="full")
    return tested._replace(encoding=replace(tested.encoding, problem=problem))


class CloneBehaviour(NamedTuple):
    """The clone of the logged behaviour that decides in closed loop."""

    network: Actor
    params: PyTree


def of_twin(twin: PlacementTwin) -> SystemUnderTest:
    """A learned twin as a system under test."""
    return SystemUnderTest(
        twin.encoding,
        twin.disjoint_windows(),
        twin.model,
        lambda model: learned_answers(twin.encoding, twin.config, model),
        jax.tree.leaves(twin.model.parameters)[0].shape[0],
        _one_member,
    )


def _one_member(model: AnswerModel, member: Array) -> AnswerModel:
    return model._replace(parameters=jax.tree.map(lambda leaf: leaf[member][None], model.parameters))
