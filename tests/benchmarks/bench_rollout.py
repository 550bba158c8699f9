"""Speed of placement rollouts with learned answers: `python -m tests.benchmarks.bench_rollout [--json]`.

Six edge nodes and the cloud, three sites, 32 slots a node, 30 services; five members of 2x256 and a 256-128-32 policy.
All figures are of one run on one machine, and only their ratios mean something: decisions a second in one jitted
rollout against the plain Python and NumPy loop over the same rules and networks; the share of the machine's float32
matmul rate that the networks' operations make (a member's and the policy's products are counted, nothing else); the
same rollout as `vmap` of single streams; the networks alone; and the rollout without networks, with uniform answers
and choices (what is left is mostly the observations, which only the networks ask for).
"""

import argparse
import itertools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.distributions import sample
from offline_rl.losses import mask_logits
from offline_rl.networks import ACTOR_HIDDEN
from tests.benchmarks.timing import least_s, show
from tests.reference import networks_loop
from tests.reference.placement_loop import PlacementLoop, request_at
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.contracts import Array, Environment, Policy, PyTree
from twin.environment import environment
from twin.networks import MLP, flatten_features
from twin.placement.bookkeeping import placement
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES, request_features
from twin.placement.learned import (
    ACCEPTANCE,
    USUAL_RUN,
    AnswerConfig,
    AnswerModel,
    answer_network,
    learned_answers,
    members_apply,
    num_inputs,
)
from twin.placement.outcome_model import NUM_OUTPUTS, NUM_UNIFORMS
from twin.placement.responses import Answers, drawn_response
from twin.placement.types import COMPLETED, Fate, PlacementState
from twin.placement.windows import Windows, replayed_arrivals
from twin.rollout import rollout

NUM_STEPS = 64
LIMITS_S = (100.0, 200.0)
ANSWERS = AnswerConfig(hidden=(256, 256))


class Bench(NamedTuple):
    """The instance measured."""

    encoding: Encoding
    windows: Windows
    model: AnswerModel
    policy_network: MLP
    policy_parameters: PyTree


def bench() -> Bench:
    """A made-up cluster and log, and networks as they are initialised."""
    cluster = made_cluster(num_edge=6, num_sites=3, num_services=30)
    encoding = made_encoding(cluster, depth=32, time_unit_s=1.0)
    rows = made_rows(np.random.default_rng(0), cluster, 4 * NUM_STEPS, gap_s=2)
    windows = cut_windows(rows, np.ones(rows.num_rows, bool), encoding, num_steps=NUM_STEPS)
    network = answer_network(ANSWERS)
    keys = jax.random.split(jax.random.key(0), ANSWERS.num_members)
    zeros = jnp.zeros((num_inputs(cluster), 1))
    members = jax.jit(jax.vmap(lambda key: network.init(key, zeros)))(keys)
    policy = MLP(ACTOR_HIDDEN, cluster.num_nodes, output_scale=0.01)
    seen = jnp.zeros((_policy_inputs(encoding), 1))
    model = AnswerModel(jax.tree.map(np.asarray, members), *LIMITS_S, np.zeros(cluster.num_nodes))
    return Bench(encoding, windows, model, policy, jax.jit(policy.init)(jax.random.key(1), seen))


def _policy_inputs(encoding: Encoding) -> int:
    return len(NODE_FEATURES) * encoding.cluster.num_nodes + len(request_features(encoding.cluster))


def operations(case: Bench) -> int:
    """Floating-point operations of the networks' matrix products in one decision."""
    answer = (num_inputs(case.encoding.cluster), *ANSWERS.hidden, NUM_OUTPUTS)
    policy = (_policy_inputs(case.encoding), *ACTOR_HIDDEN, case.encoding.cluster.num_nodes)
    return sum(2 * a * b for widths in (answer, policy) for a, b in itertools.pairwise(widths))


def system_of(case: Bench, answers: Answers | None = None) -> Environment:
    """The environment: replayed arrivals, learned answers unless others are given."""
    encoding = case.encoding
    answers = answers or learned_answers(encoding, ANSWERS, case.model)
    response = drawn_response(
        encoding.cluster, encoding.problem.depth, replayed_arrivals(case.windows), answers
    )
    return environment(placement(encoding.cluster, encoding.problem), response)


def policy_of(case: Bench) -> Policy:
    """The masked policy, sampled."""

    def policy(key: Array, observation: PyTree, legal: Array) -> Array:
        logits = case.policy_network.apply(
            case.policy_parameters, flatten_features(observation, legal.ndim - 1)
        )
        return sample(key, mask_logits(jnp.asarray(logits), legal))

    return policy


def random_policy(key: Array, _observation: PyTree, legal: Array) -> Array:
    """A legal node by chance: what a rollout costs without the policy's network."""
    return sample(key, mask_logits(jnp.zeros(legal.shape), legal))


def short_answers() -> Answers:
    """Answers from uniforms alone: what a rollout costs without the answers' networks."""

    def answer(
        key: Array, memory: None, state: PlacementState, node: Array, _note: None
    ) -> tuple[None, Fate]:
        uniforms = jax.random.uniform(key, (NUM_UNIFORMS, *node.shape))
        start_s = state.clock_s[None] + 5.0 * uniforms[4]
        status = jnp.full(node.shape, COMPLETED, jnp.int32)
        return memory, Fate(uniforms[0] < 0.9, start_s, start_s + 10.0 * uniforms[6], status)

    return Answers(lambda _key, _streams: None, answer)


SIZE = 2048
"""Of the square matrices whose product gives the machine's rate."""


def matmul_run() -> Callable[[], Any]:
    """One large float32 matrix product."""
    square = jnp.ones((SIZE, SIZE))
    product = jax.jit(lambda one: one @ one)
    return lambda: product(square)


def rollout_run(
    system: Environment, policy: Policy, num_streams: int, *, full: bool = False
) -> Callable[[], Any]:
    """One jitted rollout; without `full` the observations are not asked for."""

    def run(key: Array) -> PyTree:
        path = rollout(key, system, policy, NUM_STEPS, (num_streams,))
        return path if full else (path.reward, path.settled, path.action, path.outcome)

    compiled = jax.jit(run)
    return lambda: compiled(jax.random.key(2))


def vmapped_run(case: Bench, num_streams: int) -> Callable[[], Any]:
    """The same work as `vmap` of the single-stream form, each stream answered by one member."""
    members = ANSWERS.num_members

    def one(key: Array, parameters: PyTree) -> PyTree:
        member = jax.tree.map(lambda leaf: leaf[None], parameters)
        model = case.model._replace(parameters=member)
        system = system_of(case, _single(learned_answers(case.encoding, ANSWERS, model)))
        path = rollout(key, system, policy_of(case), NUM_STEPS, ())
        return path.reward, path.settled, path.action, path.outcome

    each = jax.vmap(jax.vmap(one, in_axes=(0, None)), in_axes=(0, 0))
    keys = jax.random.split(jax.random.key(2), (members, num_streams // members))
    parameters = jax.tree.map(jnp.asarray, case.model.parameters)
    compiled = jax.jit(each)
    return lambda: compiled(keys, parameters)


def _single(answers: Answers) -> Answers:
    """Answers of one stream axis, for states without any."""

    def widen(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[..., None], tree)

    def narrow(tree: PyTree) -> PyTree:
        return jax.tree.map(lambda leaf: leaf[..., 0], tree)

    def answer(
        key: Array, memory: PyTree, state: PlacementState, node: Array, response_aux: PyTree
    ) -> tuple[PyTree, Fate]:
        memory, fate = answers.answer(key, memory, widen(state), node[..., None], widen(response_aux))
        return memory, narrow(fate)

    def response_aux(state: PlacementState, node: Array) -> PyTree:
        return narrow(answers.response_aux(widen(state), node[..., None]))

    return Answers(lambda key, _streams: answers.init(key, (1,)), answer, response_aux)


def networks_run(case: Bench, num_streams: int) -> Callable[[], Any]:
    """The networks alone, as often and as wide as in a rollout."""
    network = answer_network(ANSWERS)
    parameters = jax.tree.map(jnp.asarray, case.model.parameters)

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        seen, offered = carry
        seen = seen + case.policy_network.apply(case.policy_parameters, seen)[:1]
        return (seen, offered + members_apply(network, parameters, offered)[:1]), None

    start = (
        jnp.ones((_policy_inputs(case.encoding), 1, num_streams)),
        jnp.ones((num_inputs(case.encoding.cluster), 1, num_streams)),
    )
    compiled = jax.jit(lambda carry: jax.lax.scan(step, carry, None, length=NUM_STEPS)[0])
    return lambda: compiled(start)


def loop_rate(case: Bench, num_decisions: int = 400) -> float:
    """Decisions a second of the plain loop, each stream with its own member."""
    cluster, problem = case.encoding.cluster, case.encoding.problem
    members = [networks_loop.layers_of(case.model.parameters, m) for m in range(ANSWERS.num_members)]
    policy = networks_loop.layers_of(case.policy_parameters)
    rng, done = np.random.default_rng(0), 0
    requests = [
        [request_at(case.windows.request, step, window) for step in range(NUM_STEPS)]
        for window in range(case.windows.num_windows)
    ]
    begun = time.perf_counter()
    while done < num_decisions:
        window = done // NUM_STEPS % case.windows.num_windows
        loop, member = PlacementLoop(cluster, problem), members[window % len(members)]
        loop.begin(float(case.windows.arrival_s[0, window]), requests[window][0])
        for step in range(int(case.windows.length[window])):
            local, full = loop.observe_nodes()
            request = loop.observe_request()
            logits = networks_loop.forward(policy, np.concatenate([local.ravel(), request]))
            node = networks_loop.sampled_choice(logits, loop.legal(), rng.random())
            chosen = np.zeros(cluster.num_nodes, np.float32)
            chosen[node] = 1.0
            availability_s, unit_s = loop.availability_s(node), problem.time_unit_s
            room = networks_loop.pending_inputs(
                0.0, 0.0, loop.crowding(node), loop.stretch(node), availability_s, unit_s
            )
            outputs = networks_loop.forward(member, np.concatenate([full[:, node], chosen, request, room]))
            fate = networks_loop.answer(
                outputs,
                rng.random(NUM_UNIFORMS),
                loop.clock_s,
                availability_s,
                float(full[ACCEPTANCE, node]),
                float(full[USUAL_RUN, node]),
                unit_s,
                LIMITS_S,
            )
            after = min(step + 1, NUM_STEPS - 1)
            loop.decide(node, fate, float(case.windows.arrival_s[after, window]), requests[window][after])
            done += 1
    return done / (time.perf_counter() - begun)


def measure(num_streams: int = 640) -> dict[str, float]:
    """All figures of one run."""
    case = bench()
    policy, system, decisions = policy_of(case), system_of(case), num_streams * NUM_STEPS
    uniform = system_of(case, short_answers())
    taken_s, _ = least_s(
        {
            "matmul": matmul_run(),
            "rollout": rollout_run(system, policy, num_streams),
            "observing": rollout_run(system, policy, num_streams, full=True),
            "vmap": vmapped_run(case, num_streams),
            "networks": networks_run(case, num_streams),
            "neither": rollout_run(uniform, random_policy, num_streams),
        },
        rounds=6,
    )
    loop = max(loop_rate(case) for _ in range(3))
    rate, whole_s = 2 * SIZE**3 / taken_s["matmul"], taken_s["rollout"]
    return {
        "streams": num_streams,
        "decisions_per_s": decisions / whole_s,
        "decisions_per_s_with_observations": decisions / taken_s["observing"],
        "decisions_per_s_vmap": decisions / taken_s["vmap"],
        "decisions_per_s_plain_loop": loop,
        "ratio_to_plain_loop": decisions / whole_s / loop,
        "matmul_gflop_per_s": rate / 1e9,
        "share_of_matmul_rate": operations(case) * decisions / whole_s / rate,
        "share_of_time_networks_alone": taken_s["networks"] / whole_s,
        "share_of_time_bookkeeping_without_networks": taken_s["neither"] / whole_s,
    }


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--streams", type=int, default=640, help="streams, a multiple of five")
    given = parser.parse_args()
    show(measure(given.streams), as_json=given.json)


if __name__ == "__main__":
    main()
