"""Training on several devices computes what it computes on one, up to the order of sums, and devices keep to themselves
while episodes run. Virtual devices of the processor stand for real ones, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from offline_rl.algorithm import Algorithm
from offline_rl.algorithms import PPOConfig, ppo
from offline_rl.networks import example_of
from offline_rl.training_loop import Experience, as_argument, in_twin, updates
from tests.twin.mechanical import mechanical
from twin.devices import can_spread

NUM_DEVICES, NUM_STREAMS = 2, 8


def learner() -> tuple[Algorithm, Experience]:
    """PPO on a small placement environment."""
    environment = mechanical(length=1000, depth=4)
    config = PPOConfig(horizon_s=1.0, actor_hidden=(4,), critic_hidden=(4,), num_minibatches=2, num_epochs=1)
    return ppo(example_of(environment), config), as_argument(in_twin(environment, 6, (NUM_STREAMS,)))


def trained(algorithm: Algorithm, experience: Experience) -> list[np.ndarray]:
    """All numbers of two updates."""
    state = jax.jit(algorithm.init)(jax.random.key(0))
    return [
        np.asarray(leaf)
        for leaf in jax.tree.leaves(updates(algorithm, 2)(jax.random.key(1), state, experience, 0))
    ]


def on_devices(file: str) -> None:
    """In the process with several devices: keeps the numbers, and looks at where they were computed."""
    assert jax.local_device_count() == NUM_DEVICES
    assert can_spread(NUM_STREAMS)
    assert not can_spread(NUM_DEVICES + 1)
    algorithm, experience = learner()
    state = jax.jit(algorithm.init)(jax.random.key(0))
    play = jax.jit(lambda key, state: experience(key, algorithm.policy(state)))
    program = play.lower(jax.random.key(2), state).compile()
    for leaf in jax.tree.leaves(program(jax.random.key(2), state)):
        shares = {shard.data.shape[-1] for shard in leaf.addressable_shards}
        assert shares == {NUM_STREAMS // NUM_DEVICES}
    collective = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
    assert not [name for name in collective if f" {name}(" in program.as_text()]
    np.savez(file, *trained(algorithm, experience))


@pytest.mark.slow
def test_two_devices_learn_what_one_does(tmp_path: Path) -> None:
    assert not can_spread(NUM_STREAMS)
    file, call = tmp_path / "numbers.npz", "import sys; from tests.offline_rl import test_devices as t"
    flags = f"--xla_force_host_platform_device_count={NUM_DEVICES} {os.environ['XLA_FLAGS']}"
    done = subprocess.run(
        [sys.executable, "-c", f"{call}; t.on_devices(sys.argv[1])", str(file)],
        env=os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    kept = np.load(file)
    numbers = trained(*learner())
    assert len(kept.files) == len(numbers)
    for name, alone in zip(kept.files, numbers, strict=True):
        np.testing.assert_allclose(kept[name], alone, rtol=1e-4, atol=1e-5)
