"""Gradient steps a second of the learners from logs.

    python -m tests.benchmarks.bench_learners [--peer PYTHON] [--json]

10,000 made-up decisions of 52 features and 10 choices (10 dimensions for TD3+BC), 256 of them in a step, networks of
2x256. All figures are of one run on one machine: steps a second, each drawing its batch; the share of the machine's
float32 matmul rate that the step's own matrix products make (all of them, counted in the traced program, and nothing
else); and five seeds trained at once (`vmap`) over five one after the other. With `--peer`, the interpreter of an
environment of its own in which d3rlpy is installed, its learners take steps on the same arrays, sizes and batch.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import jaxprs_in_params

from offline_rl.algorithm import Algorithm
from offline_rl.algorithms import (
    BehaviourCloningConfig,
    ConservativeQConfig,
    ImplicitQConfig,
    TD3BCConfig,
    behaviour_cloning,
    conservative_q,
    implicit_q,
    td3_bc,
)
from offline_rl.networks import example_in
from offline_rl.training_loop import Experience, train
from offline_rl.transitions import pairs_from_logs
from tests.benchmarks.bench_rollout import SIZE, matmul_run
from tests.benchmarks.timing import least_s
from twin.contracts import Interval, Trajectory

NUM_STREAMS, NUM_STEPS, NUM_FEATURES, NUM_CHOICES = 100, 100, 52, 10
BATCH, HIDDEN, NUM_SEEDS = 256, (256, 256), 5
PEER = Path(__file__).with_name("peer_learners.py")


class Case(NamedTuple):
    """A learner, what it learns from, and how many steps to take."""

    algorithm: Algorithm
    experience: Experience
    num_updates: int


def made_log(*, continuous: bool) -> Trajectory:
    """Random decisions in random states."""
    rng = np.random.default_rng(0)
    shape = (NUM_STEPS, 1, NUM_STREAMS)
    seen = rng.normal(size=(NUM_STEPS + 1, NUM_FEATURES, NUM_STREAMS)).astype(np.float32)
    actions = (NUM_STEPS, NUM_CHOICES, 1, NUM_STREAMS)
    numbers = tuple(jnp.asarray(np.tanh(rng.normal(size=shape)), jnp.float32) for _ in range(NUM_CHOICES))
    ends = Interval(-jnp.ones(shape), jnp.ones(shape))
    choices = jnp.asarray(rng.integers(NUM_CHOICES, size=shape), jnp.int32)
    yes = jnp.ones(shape, bool)
    return Trajectory(
        observation=jnp.asarray(seen[:-1, :, None]),
        global_observation=jnp.asarray(seen),
        legal=(ends,) * NUM_CHOICES if continuous else jnp.ones(actions, bool),
        active=yes,
        action=numbers if continuous else choices,
        reward=jnp.asarray(rng.normal(size=shape), jnp.float32),
        settled=yes,
        decision_info=(),
        outcome=(),
        elapsed_s=jnp.ones((NUM_STEPS, NUM_STREAMS)),
        terminated=jnp.zeros((NUM_STEPS, NUM_STREAMS), bool),
        done=jnp.zeros((NUM_STEPS, NUM_STREAMS), bool),
        illegal=~yes,
    )


def cases(logs: dict[bool, Trajectory]) -> dict[str, Case]:
    """Every learner; a clone learns from both decisions of a pair, so it is given half as many pairs."""
    example, continuous = (example_in(logs[kind]) for kind in (False, True))
    pairs, half = pairs_from_logs(logs[False], BATCH), pairs_from_logs(logs[False], BATCH // 2)
    return {
        "bc": Case(behaviour_cloning(example, BehaviourCloningConfig(hidden=HIDDEN)), half, 400),
        "td3_bc": Case(
            td3_bc(continuous, TD3BCConfig(hidden=HIDDEN)), pairs_from_logs(logs[True], BATCH), 200
        ),
        "iql": Case(implicit_q(example, ImplicitQConfig(hidden=HIDDEN)), pairs, 200),
        "cql": Case(conservative_q(example, ConservativeQConfig(hidden=HIDDEN)), pairs, 200),
    }


def operations(case: Case) -> float:
    """Floating-point operations of the matrix products in one step."""
    key = jax.random.key(0)
    state = jax.eval_shape(case.algorithm.init, key)

    def step(key: Any, state: Any) -> Any:
        batch = case.experience(key, case.algorithm.policy(state))
        return case.algorithm.step(key, state, batch)

    return sum(_products(jax.make_jaxpr(step)(key, state).jaxpr))


def _products(jaxpr: Any) -> Iterator[float]:
    """Of a branching, the mean: the only one is taken every other step."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left, out = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
            yield 2 * int(np.prod(out)) * int(np.prod([left[axis] for axis in contracted]))
        inner = [sum(_products(one)) for one in jaxprs_in_params(equation.params)]
        yield sum(inner) / (len(inner) if equation.primitive.name == "cond" else 1)


def seconds(run: Callable[[], Any]) -> float:
    """The least time of some calls, after one that compiles."""
    return least_s({"run": run})[0]["run"]


def measured(case: Case, matmul_rate: float) -> dict[str, float]:
    """Figures of one learner; `matmul_rate` in operations a second."""
    keys = jax.random.split(jax.random.key(0), NUM_SEEDS)
    one = partial(train, algorithm=case.algorithm, experience=case.experience, num_updates=case.num_updates)
    alone, together = jax.jit(one), jax.jit(jax.vmap(one))
    alone_s, together_s = seconds(lambda: alone(keys[0])), seconds(lambda: together(keys))
    return {
        "steps_per_s": case.num_updates / alone_s,
        "share_of_matmul_rate": operations(case) * case.num_updates / alone_s / matmul_rate,
        "seeds_at_once_over_one_by_one": together_s / (NUM_SEEDS * alone_s),
    }


def peer_steps(python: str, logs: dict[bool, Trajectory]) -> dict[str, float]:
    """Learner -> steps a second of the peer in its own environment."""

    def flat(leaf: Any) -> np.ndarray:
        """[T, ..., 1, B] -> [B * T, ...]"""
        return np.moveaxis(np.asarray(leaf)[..., 0, :], -1, 0).reshape(NUM_STREAMS * NUM_STEPS, -1)

    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "log.npz"
        np.savez(
            arrays,
            observation=flat(logs[False].observation),
            reward=flat(logs[False].reward),
            choice=flat(logs[False].action),
            action=flat(np.stack(logs[True].action, axis=1)),
            length=NUM_STEPS,
        )
        command = [python, str(PEER), str(arrays), str(BATCH), *map(str, HIDDEN)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter of an environment that has d3rlpy")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    logs = {kind: made_log(continuous=kind) for kind in (False, True)}
    rate = 2 * SIZE**3 / seconds(matmul_run())
    figures = {name: measured(case, rate) for name, case in cases(logs).items()}
    if given.peer:
        for name, steps in peer_steps(given.peer, logs).items():
            figures[name] |= {
                "peer_steps_per_s": steps,
                "ratio_to_peer": figures[name]["steps_per_s"] / steps,
            }
    if given.json:
        print(json.dumps({"matmul_gflop_per_s": rate / 1e9} | figures))
        return
    print(f"matmul {rate / 1e9:.0f} GFLOP/s")
    for name, found in figures.items():
        told = "".join(f"  {key} {value:.2f}" for key, value in found.items())
        print(f"{name:7s}{told}")


if __name__ == "__main__":
    main()
