"""What a correction of the tuned rule could gain at best by what policies observe: trained in the truth itself.

    python -m tests.benchmarks.bench_headroom WORLD.toml FOLDER --seed N

FOLDER is the work folder of `schedtwin reproduce table2 --world WORLD.toml --seed N`: its rule, its features and its
networks are taken, but the episodes are those of the simulated world on day 0, not the twin's. So the twin's errors
have no part in what comes of it: if nothing is gained here, it is the observations or the learner that lack something.
How much the learner can do is seen from another rule (`--rule expected_on_time`), of which the tuned one shows what is
to be had. The best update is chosen by other episodes of that day, and judged, with the rule, on the table's requests.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from evaluation.judges.players import GREEDY
from evaluation.judges.truth import age_of
from evaluation.reproduction.simulated_days import KINDS, policy_program
from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.conditions import DayConditions, conditions
from evaluation.simulator.logs import FIRST_DAY
from evaluation.simulator.names import names_in
from evaluation.simulator.truth import truth_response
from evaluation.simulator.world import World
from evaluation.simulator.world_files import chosen_world
from offline_rl.algorithms import PPOConfig, ppo
from offline_rl.losses import weighted_mean
from offline_rl.networks import Actor, greedy_policy
from offline_rl.recipes.correcting import kind_of
from offline_rl.recipes.schedulers import example_for, load_schedulers
from offline_rl.recipes.training import horizon_s
from offline_rl.rules.in_twin import TUNED
from offline_rl.rules.residual import on_rule, residual
from offline_rl.scorer import ScorerConfig
from offline_rl.selecting import train_selecting
from offline_rl.training_loop import Experience
from twin.contracts import Array, Policy, PyTree, Trajectory
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.model import PlacementTwin
from twin.placement.rewards import lost_is_worst
from twin.rollout import rollout

DAYS, NUM_REPLICATIONS, MOST_REQUESTS = (0, 30), 6, 5_000
"""As `reproduce table2 --quick --shifts 0,30` judges."""
NUM_EVALUATIONS = 2
"""Sets of episodes of an evaluation."""


@dataclass(frozen=True)
class Training:
    """How the correction is trained: updates, episodes of an update and requests of each, step size, hidden layers,
    and the rule that is corrected."""

    updates: int = 60
    streams: int = 32
    requests: int = 1_024
    learning_rate: float = 5e-4
    hidden: tuple[int, ...] = (32, 16)
    rule: str = TUNED


class Headroom(NamedTuple):
    """What came of it."""

    # On time on other episodes of day 0: of the rule, then of the correction every five updates
    evaluations: np.ndarray
    rule: dict[int, float]  # day -> on time
    gain: dict[int, float]  # day -> the correction less the rule, paired
    error: dict[int, float]  # day -> standard error of the gain, over replications


def in_truth(world: World, twin: PlacementTwin, training: Training) -> Experience:
    """Episodes of day 0, which begin empty at times of day drawn evenly, seen as the twin's policies see them."""
    encoding = twin.encoding
    names, problem = names_in(world, encoding.cluster, encoding.run_habits), encoding.problem

    def act(today: DayConditions, key: Array, policy: Policy) -> Trajectory:
        key_begin, key_run = jax.random.split(key)
        begin_s = jax.random.uniform(key_begin, (training.streams,)) * jnp.asarray(today.day_s)
        response = truth_response(world, encoding.cluster, problem.depth, today, names, begin_s=begin_s)
        books = placement(encoding.cluster, problem, age_s=age_of(today, encoding, FIRST_DAY))
        played = rollout(
            key_run, environment(books, response), policy, training.requests, (training.streams,)
        )
        return lost_is_worst(played, problem.reward, problem.worst_response)

    return Partial(act, jax.tree.map(jnp.asarray, conditions(world, 0)))


def headroom(world: World, folder: Path, training: Training, seed: int) -> Headroom:
    """Trains the correction in the truth, and judges it beside its rule."""
    twin, (schedulers, _) = PlacementTwin.load(folder / "twin"), load_schedulers(folder / "policy")
    rule, example = schedulers.rules[training.rule], example_for(twin.encoding, twin.windows)
    network = residual(example, kind_of(rule), ScorerConfig(training.hidden))
    own = in_truth(world, twin, training)
    key_start, key_evaluation, key_train = jax.random.split(jax.random.key(seed), 3)
    start = on_rule(jax.jit(network.init)(key_start), rule)
    settings = PPOConfig(
        horizon_s=horizon_s(twin), entropy=0.0, kl_to_clone=0.0, learning_rate=training.learning_rate
    )
    found = train_selecting(
        key_train,
        ppo(example, settings, start, network),
        own,
        training.updates,
        _evaluate(network, own, key_evaluation),
    )
    return _judged(world, twin, network, start, found.best.params.actor, found.evaluations, seed)


def _evaluate(network: Actor, own: Experience, key: Array) -> Callable[[PyTree], float]:
    @jax.jit
    def on_time(own: Experience, params: PyTree, key: Array) -> Array:
        played = own(key, greedy_policy(network, params))
        return weighted_mean(played.reward, (played.active & played.settled).astype(jnp.float32))

    keys = jax.random.split(key, NUM_EVALUATIONS)
    return lambda state: float(np.mean([on_time(own, state.params.actor, one) for one in keys]))


def _judged(
    world: World,
    twin: PlacementTwin,
    network: Actor,
    rule: PyTree,
    corrected: PyTree,
    evaluations: np.ndarray,
    seed: int,
) -> Headroom:
    judge = policy_program(
        world, twin.encoding, network, behaviour("mix"), NUM_REPLICATIONS, {}, twin.encoding.problem.depth,
        mixed=False, most_requests=MOST_REQUESTS,
    )  # fmt: skip
    both = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), rule, corrected)
    found = Headroom(evaluations, {}, {}, {})
    for day in DAYS:
        key = jax.random.fold_in(jax.random.key(seed + 1), day)
        shares = judge(key, jnp.int32(KINDS.index(GREEDY)), both, conditions(world, day), jnp.int32(day % 7))
        of_rule, of_both = np.asarray(shares.on_time)
        gains = of_both - of_rule
        found.rule[day], found.gain[day] = float(of_rule.mean()), float(gains.mean())
        found.error[day] = float(gains.std(ddof=1) / len(gains) ** 0.5)
    return found


def main() -> None:
    """Prints the result as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("world", help="world file or preset of the table")
    parser.add_argument("folder", type=Path, help="work folder of the table")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--rule", default=TUNED)
    options = parser.parse_args()
    file = Path(options.world)
    world = chosen_world(options.world, file if file.suffix else None, options.seed)
    training = Training(
        options.updates, options.streams, learning_rate=options.learning_rate, rule=options.rule
    )
    found = headroom(world, options.folder, training, options.seed)
    print(
        json.dumps(
            {
                "world": world.name,
                "seed": options.seed,
                **found._replace(evaluations=found.evaluations.round(4).tolist())._asdict(),
            }
        )
    )


if __name__ == "__main__":
    main()
