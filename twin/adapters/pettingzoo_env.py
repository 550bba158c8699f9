"""An environment of several seats as a PettingZoo `ParallelEnv`; needs the package pettingzoo (extra `adapters`).

Every seat is an agent that acts at every step; `info["active"]` is whether it had something to decide, and the
action of one that had not is ignored. Each agent is paid for its own decisions when their outcomes become known.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from logs_schema.extras import how_to_install
from twin.adapters.stepwise import TimeStep, stepwise
from twin.contracts import Environment
from twin.networks import flatten_features

try:
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise ConfigError(
        "this adapter needs pettingzoo, which is not installed", advice=how_to_install("adapters")
    ) from error


class SchedulingParallelEnv(ParallelEnv[str, np.ndarray, np.int64]):
    """One stream of an environment, a seat an agent.

    Args:
        environment: What to step; its action has one part.
        num_steps: Longest episode.
        names: Of the agents, by seat; "seat-0", "seat-1", ... if not given.

    Raises:
        ConfigError: The action has several parts, or there are not as many names as seats.
    """

    metadata = {"name": "schedtwin", "render_modes": []}  # noqa: RUF012 the base class declares it so

    def __init__(self, environment: Environment, num_steps: int, names: Sequence[str] = ()) -> None:
        game = stepwise(environment, num_steps)
        self._reset, self._step = jax.jit(game.reset), jax.jit(game.step)
        seen = jax.eval_shape(game.reset, jax.random.key(0))[1]
        masks = jax.tree.leaves(seen.legal)
        self.possible_agents = list(names) or [f"seat-{seat}" for seat in range(game.num_seats)]
        if len(masks) != 1 or len(self.possible_agents) != game.num_seats:
            raise ConfigError(
                f"{len(self.possible_agents)} names for {game.num_seats} seats, actions of {len(masks)} parts",
                where="SchedulingParallelEnv",
                allowed="a name for each seat, and one action",
            )
        size = jax.eval_shape(lambda leaf: flatten_features(leaf, 1), seen.observation).shape[0]
        self._structure = jax.tree.structure(seen.legal)
        self.observation_spaces = {
            name: gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32) for name in self.possible_agents
        }
        self.action_spaces = {
            name: gymnasium.spaces.Discrete(masks[0].shape[0]) for name in self.possible_agents
        }
        self._flatten = jax.jit(lambda observation: flatten_features(observation, 1))
        self.agents: list[str] = []
        self._random = np.random.default_rng()

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """The space of an agent's observations."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """The space of an agent's actions."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """A fresh episode; the same seed gives the same one."""
        if seed is not None:
            self._random = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self._episode, look = self._reset(self._key())
        return self._seen(look)

    def step(self, actions: dict[str, np.int64]) -> tuple[dict[str, Any], ...]:
        """Every agent acts; returns observations, rewards, terminations, truncations and infos by agent."""
        whole = jnp.array([int(actions.get(name, 0)) for name in self.possible_agents], jnp.int32)
        chosen = jax.tree.unflatten(self._structure, [whole])
        self._episode, look = self._step(self._key(), self._episode, chosen)
        observations, infos = self._seen(look)
        names, reward = self.possible_agents, np.asarray(look.reward)
        rewards = {name: float(reward[seat]) for seat, name in enumerate(names)}
        terminations = dict.fromkeys(names, bool(look.terminated))
        truncations = dict.fromkeys(names, bool(look.truncated))
        if look.terminated or look.truncated:
            self.agents = []
        return observations, rewards, terminations, truncations, infos

    def _key(self) -> jax.Array:
        return jax.random.key(int(self._random.integers(2**31)))

    def _seen(self, look: TimeStep) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        features = np.asarray(self._flatten(look.observation), np.float32)
        mask = np.asarray(jax.tree.leaves(look.legal)[0]).astype(np.int8)
        active = np.asarray(look.active)
        named = list(enumerate(self.possible_agents))
        observations = {name: features[:, seat] for seat, name in named}
        infos = {
            name: {"action_mask": mask[:, seat], "active": bool(active[seat]), "num_open": int(look.num_open)}
            for seat, name in named
        }
        return observations, infos
