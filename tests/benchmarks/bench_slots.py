"""Speed of slot mode: `python -m tests.benchmarks.bench_slots [--json]`.

The kais preset at 0.7 requests a slot and access point, so that seats are seldom idle; decisions are requests sent,
idle seats do not count. All figures are of one run on one machine, and only their ratios mean something. Observations
and masks are built in every slot on both sides: the arrays' are kept from being optimised away by a barrier.

    random   one uniform number a seat picks a legal node
    network  a 256-128-32 policy, sampled; in NumPy on the plain side
    phases   parts of a slot run alone, as shares of the processor time of a slot with a network
    memory   peak resident memory of a process of its own with 1,024 environments, compiling included

The ratio of processor time is the one to trust on a busy machine: the arrays use both cores, plain Python one.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.simulator.conditions import conditions
from evaluation.simulator.presets import preset
from evaluation.simulator.slots import SlotConfig, time_scaled
from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.instance import Instance, instance
from offline_rl.distributions import sample
from offline_rl.losses import mask_logits
from offline_rl.networks import ACTOR_HIDDEN
from tests.benchmarks.timing import least_s, peak_mib, show
from tests.reference import networks_loop
from tests.reference.slot_loop import SlotLoop
from twin.contracts import Array, EnvironmentState, Policy, PyTree
from twin.environment import environment
from twin.networks import MLP, flatten_features
from twin.orchestration import nodes, queues
from twin.orchestration.mechanics import slot_response
from twin.orchestration.slots import slot_problem

SLOTS = 40
WARM_SLOTS = 200


class Bench(NamedTuple):
    """The instance measured, warm: queues and nodes are as full as they become."""

    case: Instance
    system: Any
    network: MLP
    parameters: PyTree
    warm: EnvironmentState


def bench(num_streams: int, num_warm: int = WARM_SLOTS) -> Bench:
    """The kais preset by slots after `num_warm` slots, and a network as it is initialised."""
    config = SlotConfig()
    world = time_scaled(preset("kais"), config, 0.7)
    case = instance(world, config)
    system = environment(
        slot_problem(case.public), slot_response(case.public, true_chance(case, 0.5 * world.day_s))
    )
    shape = jax.eval_shape(
        lambda key: system.problem.observe(system.reset(key, ()).problem), jax.random.key(0)
    )
    inputs = sum(leaf.size for leaf in jax.tree.leaves(shape)) // case.public.num_seats
    network = MLP(ACTOR_HIDDEN, case.public.num_nodes, output_scale=0.01)
    parameters = jax.jit(network.init)(jax.random.key(1), jnp.zeros((inputs, 1)))
    start = jax.jit(lambda key: system.reset(key, (num_streams,)))(jax.random.key(2))
    warm = _runner(system, random_policy, num_warm)(start)[0] if num_warm else start
    return Bench(case, system, network, parameters, warm)


def random_policy(key: Array, _observation: PyTree, legal: Array) -> Array:
    """A legal node by chance: the k-th legal one, k by one uniform number a seat."""
    number = legal.shape[0]
    below = jnp.asarray(np.tril(np.ones((number, number), np.float32)))
    rank = jnp.tensordot(below, legal.astype(jnp.float32), axes=1)
    wanted = jax.random.uniform(key, legal.shape[1:]) * rank[-1]
    return jnp.minimum(jnp.sum(rank <= wanted[None], axis=0, dtype=jnp.int32), number - 1)


def network_policy(case: Bench) -> Policy:
    """The masked network, sampled."""

    def policy(key: Array, observation: PyTree, legal: Array) -> Array:
        features = flatten_features(observation, legal.ndim - 1)
        return sample(key, mask_logits(jnp.asarray(case.network.apply(case.parameters, features)), legal))

    return policy


def _runner(system: Any, policy: Policy, num_slots: int = SLOTS) -> Callable[[EnvironmentState], tuple]:
    """A jitted run of `num_slots` from a state: the last state and the number of decisions."""
    problem = system.problem

    def one(state: EnvironmentState, key: Array) -> tuple[EnvironmentState, Array]:
        key_policy, key_response = jax.random.split(key)
        seen = problem.observe(state.problem), problem.legal(state.problem)
        observation, legal = jax.lax.optimization_barrier(seen)
        action = policy(key_policy, observation, legal)
        # Whatever the policy does, they are built
        used = observation.node[0, 0] + observation.request[0] < jnp.inf
        number = jnp.sum(problem.active(state.problem))
        return system.step(key_response, state, jnp.where(used, action, 0))[0], number

    def run(state: EnvironmentState) -> tuple[EnvironmentState, Array]:
        state, number = jax.lax.scan(one, state, jax.random.split(jax.random.key(3), num_slots))
        return state, jnp.sum(number)

    return jax.jit(run)


def phases(case: Bench) -> dict[str, Callable[[], Any]]:
    """Parts of a slot, each by itself on the warm state."""
    state, day = case.warm, case.case.public
    chance = true_chance(case.case)
    inner, held, waiting = state.problem, state.response.held, state.response.queues
    from_s = inner.placement.clock_s
    problem, response = case.system.problem, slot_response(day, chance)
    action = jnp.zeros((day.num_seats, *from_s.shape), jnp.int32)
    numbers = chance.numbers(jax.random.key(4), from_s.shape)
    _, outcome = jax.jit(response.advance)(jax.random.key(5), state.response, inner, action)
    capacity = nodes.Capacity(*(jnp.asarray(value)[:, None] for value in (day.cores, day.at_once)))

    def queue(waiting: queues.Queues, numbers: Array, from_s: Array) -> PyTree:
        left, _ = queues.enter(day, chance, waiting, numbers, from_s + day.config.slot_s, None)
        left, _ = queues.drop_late(left, from_s + day.config.slot_s)
        return queues.in_hand(day, chance, left, queues.first_in_line(left))

    def serve(held: nodes.Held, from_s: Array) -> PyTree:
        return nodes.serve(held, capacity, from_s, from_s + day.config.slot_s, day.config.drop_served)

    parts: dict[str, tuple[Callable[..., Any], tuple]] = {
        "random numbers": (lambda key: chance.numbers(key, from_s.shape), (jax.random.key(6),)),
        "queues of access points": (queue, (waiting, numbers, from_s)),
        "nodes": (serve, (held, from_s)),
        "bookkeeping": (problem.apply, (inner, action, outcome, action)),
        "observations and masks": (lambda one: (problem.observe(one), problem.legal(one)), (inner,)),
        "policy network": (
            network_policy(case),
            (jax.random.key(7), problem.observe(inner), problem.legal(inner)),
        ),
    }

    def timed(part: Callable[..., Any], given: tuple) -> Callable[[], Any]:
        compiled = jax.jit(part)
        return lambda: compiled(*given)

    return {name: timed(part, given) for name, (part, given) in parts.items()}


def plain_rate(case: Bench, *, network: bool, seconds: float = 3.0) -> tuple[float, float]:
    """Decisions a second of wall and of processor time, of the plain loop from an equally warm state at noon."""
    day, world, rng = case.case.public, case.case.world, random.Random(0)
    layers = networks_loop.layers_of(case.parameters) if network else None
    loop = SlotLoop(world, conditions(world, 0.0), day.config, day.replicas[1:])
    loop.begin([rng.random() for _ in range(day.num_seats)])
    loop.next_s = [0.5 * world.day_s for _ in loop.next_s]
    loop.slot = round(0.5 * world.day_s / day.config.slot_s)
    loop.clock_s = loop.slot * day.config.slot_s
    for _ in range(WARM_SLOTS):
        _plain_slot(loop, rng, layers)
    begun, worked, done = time.perf_counter(), time.process_time(), 0
    while time.perf_counter() - begun < seconds:
        done += _plain_slot(loop, rng, layers)
    return done / (time.perf_counter() - begun), done / (time.process_time() - worked)


def _plain_slot(loop: SlotLoop, rng: random.Random, layers: Any) -> int:
    seen, _ = loop.observe_nodes()
    chosen: list[int | None] = []
    for site in range(loop.num_sites):
        request, legal = loop.observe_request(site), loop.legal(site)
        if not any(legal):
            chosen.append(None)
        elif layers is None:
            chosen.append(rng.choice([node for node, possible in enumerate(legal) if possible]))
        else:
            features = np.concatenate(
                [np.array(seen[site], np.float32).ravel(), np.array(request, np.float32)]
            )
            logits = networks_loop.forward(layers, features)
            chosen.append(networks_loop.sampled_choice(logits, legal, rng.random()))
    rows = 4 + 5 * loop.config.arrivals_per_slot
    loop.step(chosen, [[1.0 - rng.random() for _ in range(loop.num_sites)] for _ in range(rows)])
    return sum(node is not None for node in chosen)


def peak_mib_of(num_streams: int) -> float:
    """Peak resident memory of a fresh process that compiles and runs the network policy in as many environments."""
    environment_variables = {**os.environ, "JAX_ENABLE_COMPILATION_CACHE": "false"}  # compiling counts
    words = [sys.executable, "-m", "tests.benchmarks.bench_slots", "--memory-of", str(num_streams)]
    return float(
        subprocess.run(words, check=True, capture_output=True, text=True, env=environment_variables).stdout
    )


def memory_of(num_streams: int) -> None:
    """Runs, and prints the peak resident memory in MiB."""
    case = bench(num_streams, num_warm=0)
    jax.block_until_ready(_runner(case.system, network_policy(case), WARM_SLOTS)(case.warm))
    print(peak_mib())


def measure(num_streams: int) -> dict[str, Any]:
    """All figures of one run."""
    case = bench(num_streams)
    drawn, deciding = (_runner(case.system, policy) for policy in (random_policy, network_policy(case)))
    parts = phases(case)
    wall_s, busy_s = least_s(
        {"random": lambda: drawn(case.warm), "network": lambda: deciding(case.warm), **parts}
    )
    figures: dict[str, Any] = {"environments": num_streams}
    for name, run in (("random", drawn), ("network", deciding)):
        decisions = int(run(case.warm)[1])
        rates = [plain_rate(case, network=name == "network") for _ in range(2)]
        plain, plain_busy = (max(column) for column in zip(*rates, strict=True))
        rate, rate_busy = decisions / wall_s[name], decisions / busy_s[name]
        figures |= {
            f"{name}_decisions_per_s": rate,
            f"{name}_plain_decisions_per_s": plain,
            f"{name}_ratio": rate / plain,
            f"{name}_ratio_of_processor_time": rate_busy / plain_busy,
            f"{name}_decisions_per_slot_and_environment": decisions / SLOTS / num_streams,
        }
    slot_s = busy_s["network"] / SLOTS
    shares = {f"share_of_slot_{name.replace(' ', '_')}": busy_s[name] / slot_s for name in parts}
    return {**figures, **shares, "peak_mib_at_1024_environments": peak_mib_of(1024)}


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--environments", type=int, default=256, help="independent copies (default: 256)")
    parser.add_argument("--memory-of", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.memory_of is not None:
        memory_of(given.memory_of)
        return
    show(measure(given.environments), as_json=given.json)


if __name__ == "__main__":
    main()
