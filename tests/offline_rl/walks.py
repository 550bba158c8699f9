"""A small Markov decision process whose best values are found by iteration, and random walks in it as logs."""

import numpy as np

from twin.contracts import Trajectory

HORIZON_S, STEP_S = 10.0, 1.0
DISCOUNT = float(np.exp(-STEP_S / HORIZON_S))
NUM_STATES, NUM_ACTIONS = 3, 3
FOLLOWING = np.array([[0, 1, 2], [1, 2, 0], [2, 0, 1]])
REWARD = np.array([[0.3, 0.0, 0.0], [0.0, 0.1, 0.4], [0.0, 2.0, 0.0]])
"""Greed stays in state 0; the way to the reward of 2 leads through states where something else pays more."""


def best_values() -> np.ndarray:
    """[states, actions] in the unit in which learners hold them: times `1 - discount`."""
    values = np.zeros((NUM_STATES, NUM_ACTIONS))
    for _ in range(2000):
        values = (1 - DISCOUNT) * REWARD + DISCOUNT * values.max(axis=1)[FOLLOWING]
    return values


def logged_walks(*, num_streams=64, num_steps=40, never=(), seed=0) -> Trajectory:
    """Uniformly random decisions, but never those of `never` (state, action); one seat, settled at once."""
    random = np.random.default_rng(seed)
    allowed = np.ones((NUM_STATES, NUM_ACTIONS), bool)
    for pair in never:
        allowed[pair] = False
    state = random.integers(NUM_STATES, size=num_streams)
    states, actions = [], []
    for _ in range(num_steps):
        states.append(state)
        score = np.where(allowed[state], random.random((num_streams, NUM_ACTIONS)), -1.0)
        actions.append(score.argmax(axis=1))
        state = FOLLOWING[state, actions[-1]]
    states, actions = np.stack(states), np.stack(actions)
    return as_trajectory(states, actions, last=state)


def as_trajectory(states, actions, last) -> Trajectory:
    """States and actions [T, B] as a trajectory; the observation is the state as a unit vector. NumPy leaves."""
    shape = (len(states), 1, states.shape[1])
    seen = np.eye(NUM_STATES, dtype=np.float32)[np.concatenate([states, last[None]])]
    seen = np.moveaxis(seen, -1, 1)  # [T + 1, states, B]
    yes, no = np.ones(shape, bool), np.zeros(shape, bool)
    return Trajectory(
        observation=seen[:-1, :, None],
        global_observation=seen,
        legal=np.ones((shape[0], NUM_ACTIONS, *shape[1:]), bool),
        active=yes,
        action=actions[:, None].astype(np.int32),
        reward=REWARD[states, actions][:, None].astype(np.float32),
        settled=yes,
        decision_info=(),
        outcome=(),
        elapsed_s=np.full((shape[0], shape[2]), STEP_S, np.float32),
        terminated=no[:, 0],
        done=no[:, 0],
        illegal=no,
    )


def altered(leaf, where, value) -> np.ndarray:
    """A copy of a leaf with `value` at the index `where`."""
    copy = np.array(leaf)
    copy[where] = value
    return copy


def every_state() -> np.ndarray:
    """[states (features), 1 seat, states (streams)]"""
    return np.eye(NUM_STATES, dtype=np.float32)[:, None]
