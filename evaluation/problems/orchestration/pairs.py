"""Pairs of dispatcher and orchestrator, played by one program that only computes who decides."""

from collections.abc import Callable, Sequence
from functools import partial

import jax

from twin.contracts import Array, Streams
from twin.orchestration.centralised import late
from twin.orchestration.chance import Chance
from twin.orchestration.counts import Counts
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.frame_mechanics import Dispatch, frame_response
from twin.orchestration.frame_state import FrameState, Scaling
from twin.orchestration.orchestrator import Orchestrate, played_frames
from twin.orchestration.slots import SlotState

PairProgram = Callable[..., Counts]
"""(key, index of the dispatcher, index of the orchestrator, seconds that a decision comes late, none by default) ->
totals at the end of the run [*streams]."""


def pair_program(
    case: EdgeCloud,
    chance: Chance,
    frames: FrameConfig,
    dispatchers: Sequence[Dispatch],
    rules: Sequence[Orchestrate],
    num_frames: int,
    streams: Streams,
) -> PairProgram:
    """The compiled day in which any of the dispatchers and of the orchestrators can act.

    Args:
        case: The cluster.
        chance: Of the truth or of a twin.
        frames: See `FrameConfig`.
        dispatchers, rules: Who can act.
        num_frames: Frames of a run.
        streams: Independent runs.
    """

    def run(key: Array, dispatch_kind: Array, rule_kind: Array, delay_s: float | Array = 0.0) -> Counts:
        def dispatch(key: Array, state: SlotState, legal: Array) -> Array:
            return jax.lax.switch(dispatch_kind, [partial(one, key, state, legal) for one in dispatchers])

        def orchestrate(key: Array, state: FrameState) -> Scaling:
            return jax.lax.switch(rule_kind, [partial(one, key, state) for one in rules])

        response = frame_response(case, late(chance, delay_s), dispatch, frames)
        return played_frames(key, case, frames, response, orchestrate, num_frames, streams)

    return jax.jit(run)
