"""What the game is played with: windows of decisions with what was seen before each and what came of it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array, Trajectory
from twin.placement.availability import PendingFates
from twin.placement.encoding import Encoding
from twin.placement.history import observed_answers, replay_log
from twin.placement.outcome_model import DrawnAnswers, Observed
from twin.placement.types import Leaf, Observation
from twin.placement.windows import Windows

NUM_ANSWER_FEATURES = 5
NUM_AGENTS = 128
"""Agents are distinguished by their index modulo this."""


class LoggedDecisions(NamedTuple):
    """Decisions of `W` windows of `T` steps; windows trail."""

    full: Observation  # node [F, nodes, T, W], request [R, T, W]: what the answers may depend on
    local: Observation  # the same as the deciding site observed it: what the engine decided by
    legal: Leaf  # [nodes, T, W] bool
    node: Leaf  # [T, W] int32: the decision
    pending: PendingFates  # leaves [T, W]: what was fated of those on the node offered
    agent: Leaf  # [T, W] int32 from `agent_index`
    valid: Leaf  # [T, W] bool: a legal decision of the window
    observed: Observed  # leaves [T, W]
    known: Leaf  # [T, W] bool: the answer is final, so that it may be judged


def agent_index(agent: Array) -> Array:
    """int32, shape as given: agents modulo `NUM_AGENTS`; -1 for those whom the log hides."""
    return jnp.where(agent < 0, -1, agent % NUM_AGENTS).astype(jnp.int32)


def same_agent(agent: Array, valid: Array) -> Array:
    """[T, T, *streams] float32: 1 where two valid decisions are for the same known agent, or are the same decision."""
    num_steps = agent.shape[0]
    itself = jnp.eye(num_steps, dtype=bool).reshape((num_steps, num_steps) + (1,) * (agent.ndim - 1))
    together = (agent[:, None] == agent[None]) & (agent[:, None] >= 0)
    return ((together | itself) & valid[:, None] & valid[None]).astype(jnp.float32)


def states_of(history: Trajectory) -> tuple[Observation, Observation, Array, Array]:
    """Full and local observations, legality and agents of a trajectory with one seat, steps beside the windows."""

    def before(leaf: Array) -> Array:
        return jnp.moveaxis(leaf[..., 0, :], 0, -2)

    full = jax.tree.map(lambda leaf: before(leaf[:-1]), history.global_observation)
    local = jax.tree.map(before, history.observation)
    agent = agent_index(history.decision_info.agent[:, 0])
    return Observation(*full), Observation(*local), before(history.legal), agent


def logged_decisions(windows: Windows, encoding: Encoding) -> LoggedDecisions:
    """History as decisions; leaves NumPy arrays."""
    history = replay_log(windows, encoding)
    full, local, legal, _ = jax.tree.map(np.asarray, states_of(history))
    observed = Observed(*(np.asarray(leaf) for leaf in observed_answers(windows, encoding.cluster)))
    if windows.work_s is not None:
        observed = observed._replace(run_s=windows.work_s)
    valid = windows.valid() & ~np.asarray(history.illegal)[:, 0] & (windows.node >= 0)
    known = valid & (~observed.accepted | observed.dropped | observed.finished)
    agent = np.asarray(agent_index(jnp.where(valid, windows.request.agent, -1)))
    node = np.maximum(windows.node, 0).astype(np.int32)
    pending = jax.tree.map(lambda leaf: np.asarray(leaf)[:, 0], history.response_aux)
    return LoggedDecisions(full, local, legal, node, pending, agent, valid, observed, known)


def drawn_as_observed(drawn: DrawnAnswers) -> Observed:
    """A drawn answer, nothing of it censored."""
    always = jnp.ones(drawn.accepted.shape, bool)
    accepted, dropped, failed = (leaf > 0.5 for leaf in (drawn.accepted, drawn.dropped, drawn.failed))
    return Observed(accepted, dropped, failed, drawn.wait_s, always, drawn.run_s, always)


def answer_features(
    accepted: Array, dropped: Array, failed: Array, wait_s: Array, run_s: Array, unit_s: float
) -> Array:
    """An answer as [NUM_ANSWER_FEATURES, *batch] numbers of order one; what did not happen counts 0.

    Args:
        accepted, dropped, failed: [*batch] 0 or 1, perhaps with gradients behind them.
        wait_s, run_s: [*batch] seconds.
        unit_s: The encoding's unit of durations.
    """
    ran = accepted * (1.0 - dropped)
    wait, run = jnp.log1p(wait_s / unit_s), jnp.log1p(run_s / unit_s)
    return jnp.stack([accepted, accepted * dropped, ran * failed, ran * wait, ran * run])


def observed_features(observed: Observed, unit_s: float) -> Array:
    """`answer_features` of logged answers."""
    accepted, dropped, failed = (
        jnp.asarray(leaf, jnp.float32) for leaf in (observed.accepted, observed.dropped, observed.failed)
    )
    wait_s, run_s = jnp.asarray(observed.wait_s), jnp.asarray(observed.run_s)
    return answer_features(accepted, dropped, failed, wait_s, run_s, unit_s)


def some_windows(decisions: LoggedDecisions, chosen: Array) -> LoggedDecisions:
    """The windows named by `chosen`."""
    return jax.tree.map(lambda leaf: jnp.take(jnp.asarray(leaf), chosen, axis=-1), decisions)
