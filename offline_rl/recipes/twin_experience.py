"""What a policy learns from in a twin: rollouts with the members of its ensemble that are not held out."""

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from offline_rl.recipes.config import TrainingConfig, num_held_out_members
from offline_rl.training_loop import Experience
from twin.contracts import Array, Policy, Trajectory
from twin.placement.disagreement import disagreement
from twin.placement.learned import AnswerModel
from twin.placement.model import PlacementTwin
from twin.placement.windows import Windows


def members_of(twin: PlacementTwin) -> tuple[AnswerModel, AnswerModel]:
    """The members to train with, and those to look at policies with; the same one where there is only one."""

    def some(part: slice) -> AnswerModel:
        parameters = jax.tree.map(lambda leaf: jnp.asarray(leaf[part]), twin.model.parameters)
        return twin.model._replace(parameters=parameters)

    if twin.config.num_members == 1:
        return some(slice(None)), some(slice(None))
    first = twin.config.num_members - num_held_out_members(twin.config.num_members)
    return some(slice(first)), some(slice(first, None))


def rollouts_in(twin: PlacementTwin, model: AnswerModel, config: TrainingConfig) -> Experience:
    """Experience from the twin: fresh windows in every stream, each stream with one member of the ensemble.

    The reward of a decision is lessened by the members' disagreement on its worth.
    """

    def act(windows: Windows, model: AnswerModel, key: Array, policy: Policy) -> Trajectory:
        key_run, key_disagreement = jax.random.split(key)
        episodes = twin.played(
            key_run,
            policy,
            config.num_streams,
            windows=windows,
            model=model,
            randomisation=config.randomisation,
            over_devices=True,
        )
        if config.disagreement == 0.0:
            return episodes
        uncertainty = disagreement(key_disagreement, twin.encoding, twin.config, model, episodes)
        reward = episodes.reward - config.disagreement * uncertainty
        return episodes._replace(reward=jnp.where(episodes.active, reward, 0.0))

    return Partial(act, jax.tree.map(jnp.asarray, twin.windows), model)
