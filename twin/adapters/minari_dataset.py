"""Logged episodes as a Minari dataset; needs the package minari (extra `adapters`).

Every stream of a trajectory is an episode of one seat: observations are vectors, rewards stand at the decision that
earned them. A decision without a known outcome cuts an episode: what follows becomes an episode of its own, for
no reward is made up. Where datasets are kept is Minari's business (`MINARI_DATASETS_PATH`).
"""

import warnings
from typing import Any

import jax
import numpy as np

from logs_schema.errors import ConfigError
from logs_schema.extras import how_to_install
from twin.contracts import Trajectory
from twin.networks import flatten_features

try:
    import gymnasium
    import minari
    from minari.data_collector import EpisodeBuffer
except ImportError as error:
    raise ConfigError(
        "this adapter needs minari, which is not installed", advice=how_to_install("adapters")
    ) from error


def to_minari(trajectory: Trajectory, dataset_id: str, **facts: Any) -> "minari.MinariDataset":
    """Writes a trajectory, for example of `twin.placement.history.replay_log`, as a dataset.

    Args:
        trajectory: Of one stream axis and one seat, one action leaf.
        dataset_id: In Minari's form, for example "cluster/history-v0".
        facts: Further arguments of `minari.create_dataset_from_buffers`, such as author or description.

    Returns:
        The dataset. Its infos hold `action_mask` at every step, `elapsed_s` to the next decision.

    Raises:
        ConfigError: Several seats or action leaves, or no decision with a known outcome.
    """
    masks = jax.tree.leaves(trajectory.legal)
    if trajectory.active.ndim != 3 or trajectory.active.shape[1] != 1 or len(masks) != 1:
        raise ConfigError(
            f"activity of shape {trajectory.active.shape} and {len(masks)} action leaves do not make episodes",
            where="to_minari",
            allowed="[T, 1, streams] and one action leaf",
        )
    features = np.asarray(jax.vmap(lambda seen: flatten_features(seen, 2))(trajectory.observation))[:, :, 0]
    episodes = [
        _episode(trajectory, features, np.asarray(masks[0]), stream, first, last)
        for stream in range(trajectory.active.shape[-1])
        for first, last in _known_stretches(trajectory, stream)
    ]
    if not episodes:
        raise ConfigError("no decision has a known outcome", where="to_minari", advice="export other days")
    numbered = [EpisodeBuffer(id=number, **parts) for number, parts in enumerate(episodes)]
    with warnings.catch_warnings():
        # Minari warns of every piece of metadata that is left out
        warnings.simplefilter("ignore", UserWarning)
        return minari.create_dataset_from_buffers(
            dataset_id,
            numbered,
            observation_space=gymnasium.spaces.Box(-np.inf, np.inf, (features.shape[1],), np.float32),
            action_space=gymnasium.spaces.Discrete(masks[0].shape[1]),
            data_format="arrow",
            **facts,
        )


def _known_stretches(trajectory: Trajectory, stream: int) -> list[tuple[int, int]]:
    """First and last step (exclusive) of every run of decisions whose outcome is known."""
    known = np.asarray(trajectory.active & trajectory.settled & ~trajectory.illegal)[:, 0, stream]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(int)))
    return [(int(first), int(last)) for first, last in edges.reshape(-1, 2)]


def _episode(
    trajectory: Trajectory, features: np.ndarray, legal: np.ndarray, stream: int, first: int, last: int
) -> dict[str, Any]:
    length, num_steps = last - first, features.shape[0]
    # The last observation stands for its successor
    seen = np.minimum(np.arange(first, last + 1), num_steps - 1)
    ended = np.zeros(length, bool)
    ended[-1] = True
    terminated = np.asarray(trajectory.terminated)[first:last, stream]
    action = np.asarray(jax.tree.leaves(trajectory.action)[0])[first:last, 0, stream]
    mask, elapsed_s = legal[seen, :, 0, stream].astype(np.int8), np.asarray(trajectory.elapsed_s)[:, stream]
    return {
        "observations": features[seen, :, stream].astype(np.float32),
        "actions": action.astype(np.int64),
        "rewards": np.asarray(trajectory.reward)[first:last, 0, stream].astype(float),
        "terminations": terminated,
        "truncations": ended & ~terminated,
        "infos": {"action_mask": mask, "elapsed_s": elapsed_s[seen].astype(float).tolist()},
    }
