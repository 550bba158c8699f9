"""An environment of one seat as a `gymnasium.Env`; needs the package gymnasium (extra `adapters`).

Observations are one vector (`twin.networks.flatten_features`), actions a number, `info["action_mask"]` marks which are
legal now (int8, as Gymnasium's `Discrete.sample` takes it). Rewards are paid when outcomes become known
(`twin.adapters.stepwise`).
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from logs_schema.extras import how_to_install
from twin.adapters.stepwise import TimeStep, stepwise
from twin.contracts import Environment
from twin.networks import flatten_features

try:
    import gymnasium
except ImportError as error:
    raise ConfigError(
        "this adapter needs gymnasium, which is not installed", advice=how_to_install("adapters")
    ) from error


class SchedulingEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One stream of an environment with one seat and one action.

    Args:
        environment: What to step.
        num_steps: Longest episode; longer ones are truncated.

    Raises:
        ConfigError: The environment has several seats, or an action of several parts.
    """

    metadata = {"render_modes": []}  # noqa: RUF012 the base class declares it so

    def __init__(self, environment: Environment, num_steps: int) -> None:
        game = stepwise(environment, num_steps)
        self._reset, self._step = jax.jit(game.reset), jax.jit(game.step)
        seen = jax.eval_shape(game.reset, jax.random.key(0))[1]
        masks = jax.tree.leaves(seen.legal)
        if game.num_seats != 1 or len(masks) != 1:
            raise ConfigError(
                f"{game.num_seats} seats and actions of {len(masks)} parts do not make a single-agent environment",
                where="SchedulingEnv",
                allowed="one seat, one action",
                advice="use twin.adapters.pettingzoo_env for several seats",
            )
        size = jax.eval_shape(lambda leaf: flatten_features(leaf, 1), seen.observation).shape[0]
        self._structure = jax.tree.structure(seen.legal)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(masks[0].shape[0])
        self._flatten = jax.jit(lambda observation: flatten_features(observation, 1)[:, 0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """A fresh episode; the same seed gives the same one."""
        super().reset(seed=seed)
        self._episode, look = self._reset(self._key())
        return self._seen(look)

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes one decision; an action that is not legal is replaced by the first legal one."""
        chosen = jax.tree.unflatten(self._structure, [jnp.full(1, int(action), jnp.int32)])
        self._episode, look = self._step(self._key(), self._episode, chosen)
        observation, info = self._seen(look)
        return observation, float(look.reward[0]), bool(look.terminated), bool(look.truncated), info

    def _key(self) -> jax.Array:
        return jax.random.key(int(self.np_random.integers(2**31)))

    def _seen(self, look: TimeStep) -> tuple[np.ndarray, dict[str, Any]]:
        mask = np.asarray(jax.tree.leaves(look.legal)[0])[:, 0].astype(np.int8)
        info = {"action_mask": mask, "elapsed_s": float(look.elapsed_s), "num_open": int(look.num_open)}
        return np.asarray(self._flatten(look.observation), np.float32), info
