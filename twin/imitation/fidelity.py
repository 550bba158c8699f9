"""Held-out fidelity: do the states of a rollout along the logged decisions look like those of the log?

At each horizon the states of many windows are a sample. For every feature of every node the earth mover's distance
between the twin's sample and the log's is divided by the deviation of that feature in the log; their mean is reported.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from twin.contracts import Array
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES
from twin.placement.history import answered_environment
from twin.placement.responses import Answers
from twin.placement.windows import Windows
from twin.rollout import follow

STATE_FEATURES = ("num_running", "num_waiting", "waiting_share", "backlog", "recent_wait")
STATES = np.array([[feature.name for feature in NODE_FEATURES].index(name) for name in STATE_FEATURES])
LEAST_SPREAD = 1e-2
"""Features are of order one; one that deviates by less than this in the log is no evidence about a twin."""


def earth_movers(one: np.ndarray, two: np.ndarray) -> np.ndarray:
    """Earth mover's distances between rows.

    Args:
        one: [columns, n].
        two: [columns, m * n].

    Returns:
        [columns], in the columns' units.
    """
    times = two.shape[1] // one.shape[1]
    return np.abs(np.sort(np.repeat(one, times, axis=1), axis=1) - np.sort(two, axis=1)).mean(axis=1)


def state_distance(logged: np.ndarray, generated: np.ndarray) -> float:
    """Mean earth mover's distance over the columns that vary in the log, in their deviations; 0 if none does.

    Args:
        logged: [..., n] states of the log.
        generated: [..., m * n] states of a twin.
    """
    one, two = (np.asarray(leaf, float).reshape(-1, leaf.shape[-1]) for leaf in (logged, generated))
    spread = one.std(axis=1)
    varies = spread > LEAST_SPREAD
    return float(np.mean(earth_movers(one[varies], two[varies]) / spread[varies])) if varies.any() else 0.0


def states_along_log(
    key: Array, encoding: Encoding, answers: Answers, windows: Windows, horizons: Sequence[int]
) -> Array:
    """States [horizons, state features, nodes, W] of a system that answers the logged decisions.

    Args:
        key: PRNG key.
        encoding: What the arrays mean.
        answers: How offers are answered.
        windows: Arrivals and decisions, a stream each.
        horizons: Decisions after which to look, at most the windows' length less one.
    """
    system = answered_environment(windows, encoding, answers)
    actions = jnp.maximum(jnp.asarray(windows.node), 0)[:, None]
    history = follow(key, system, actions, (windows.arrival_s.shape[1],))
    node = history.global_observation.node[jnp.array(horizons)][:, jnp.array(STATES)]
    return node.reshape(*node.shape[:3], -1)


def repeated(windows: Windows, times: int) -> Windows:
    """The windows, all of them `times` over."""
    tiled = jax.tree.map(
        lambda leaf: jnp.concatenate([jnp.asarray(leaf)] * times, axis=-1),
        windows._replace(num_overflow=None),
    )
    return tiled._replace(num_overflow=0)
