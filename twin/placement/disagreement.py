"""How much the members of the ensemble disagree on what a decision is worth: the twin's uncertainty, decision by
decision.

Each member answers the same offers with the same draws of chance; what is left between them is the epistemic
uncertainty of the model. Source: Yu et al. 2020 (MOPO), with the deviation of the members' expected rewards as the
penalty.
"""

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, Trajectory
from twin.networks import apply
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding
from twin.placement.learned import (
    AnswerConfig,
    AnswerModel,
    answer_inputs,
    answer_network,
    answer_parameters,
    as_fate,
)
from twin.placement.outcome_model import NUM_UNIFORMS, sample_answer
from twin.placement.types import Observation, PlacementOutcome

NUM_DRAWS = 4
"""Draws of chance over which each member's expected reward is averaged; the same ones for every member."""


def disagreement(
    key: Array, encoding: Encoding, config: AnswerConfig, model: AnswerModel, trajectory: Trajectory
) -> Array:
    """Deviation, over the members, of the expected reward of every decision of a trajectory.

    Args:
        key: PRNG key of the draws.
        encoding: What the arrays mean.
        config: Of the ensemble.
        model: The ensemble.
        trajectory: Of the placement problem with learned answers, leaves [T, ..., seats, B].

    Returns:
        [T, seats, B] >= 0, in units of the reward; 0 for an ensemble of one.
    """
    problem, unit_s = placement(encoding.cluster, encoding.problem), encoding.problem.time_unit_s
    seen = jax.tree.map(lambda leaf: jnp.moveaxis(leaf[:-1], 0, -2), trajectory.global_observation)
    decision_info = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2), trajectory.decision_info)
    pending = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2), trajectory.response_aux)
    inputs = answer_inputs(encoding.cluster, Observation(*seen), decision_info.node, pending, unit_s)
    low = float(np.finfo(np.float32).tiny)
    uniforms = jax.random.uniform(key, (NUM_DRAWS, NUM_UNIFORMS, *decision_info.node.shape), minval=low)
    limits_s = model.limits_s(pending)
    network = answer_network(config)

    def expected(parameters: Array) -> Array:
        answers = answer_parameters(apply(network, parameters, inputs), inputs, encoding)

        def once(uniforms: Array) -> Array:
            drawn = sample_answer(
                answers, uniforms, unit_s, limits_s, cut_short=bool(encoding.cluster.hazard)
            )
            fate = as_fate(drawn, decision_info.arrival_s)
            return problem.reward(decision_info, PlacementOutcome(fate.start_s, fate.finish_s, fate.status))

        return jnp.mean(jax.lax.map(once, uniforms), axis=0)

    worth = jax.lax.map(expected, jax.tree.map(jnp.asarray, model.parameters))
    return jnp.moveaxis(jnp.std(worth, axis=0), -2, 0)
