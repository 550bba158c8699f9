"""What a certificate holds against a log: whatever answers offers, a learned twin or the simulated truth itself."""

from collections.abc import Callable
from typing import NamedTuple

import jax

from offline_rl.networks import Actor
from twin.contracts import PyTree
from twin.placement.encoding import Encoding
from twin.placement.learned import learned_answers
from twin.placement.model import PlacementTwin
from twin.placement.responses import Answers
from twin.placement.windows import Windows


class Believed(NamedTuple):
    """A system under test."""

    encoding: Encoding
    windows: Windows  # of the training days: what a clone of the behaviour is fitted on
    model: PyTree  # arrays that the answers depend on, an argument of every compiled program
    answers: Callable[[PyTree], Answers]  # memory of an answer must not depend on the answers before it
    num_members: int  # streams are dealt to so many members in equal consecutive shares


class CloneBehaviour(NamedTuple):
    """Who decides in closed loop: a clone of the logged behaviour."""

    network: Actor
    params: PyTree


def of_twin(twin: PlacementTwin) -> Believed:
    """A learned twin as a system under test."""
    return Believed(
        twin.encoding,
        twin.disjoint_windows(),
        twin.model,
        lambda model: learned_answers(twin.encoding, twin.config, model),
        jax.tree.leaves(twin.model.parameters)[0].shape[0],
    )
