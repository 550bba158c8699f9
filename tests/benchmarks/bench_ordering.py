"""Speed of the ordering problem with a scorer in the loop, against a plain Python and NumPy event loop.

    python -m tests.benchmarks.bench_ordering [--streams 64] [--jobs 300] [--repeats 5] [--json]

Both play the same made jobs to the end under EASY, choose greedily with the same scorer (64-32, shared by all waiting
jobs) and see the same features of the first 128 waiting jobs; the loop plays a few of the streams. Both run in this
process in turn, best of the repeats each. Target: at least 5 times the loop's jobs a second. Beside it: the ratio of
processor time, which other work on the machine moves less (and which gives a second core no credit), and the same
episodes under first come, first served, without features and network.
"""

import argparse
import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from offline_rl.networks import example_of
from offline_rl.scorer import ScorerConfig, scorer
from tests.benchmarks.timing import least_s
from tests.ordering.pooling import columns_of, cut_whole, joined
from tests.reference.ordering_policy_loop import NumpyScorer, PolicyLoop
from twin.environment import environment
from twin.ordering.config import OrderingConfig
from twin.ordering.job_windows import replayed_jobs
from twin.ordering.orders import by_arrival
from twin.ordering.play import by_order, by_scorer, play
from twin.ordering.problem import ordering
from twin.ordering.responses import queue_response
from twin.ordering.types import Jobs, Pool

TARGET = 5.0
CAPACITY = 100
NUM_COMPARED = 4


def made_jobs(seed: int, num_jobs: int, capacity: int = CAPACITY, load: float = 1.0) -> Jobs:
    """A busy stretch of a machine: widths in powers of two, long-tailed run times, generous requests."""
    generator = np.random.default_rng(seed)
    width = np.minimum(2 ** generator.integers(0, 7, num_jobs), capacity).astype(float)
    run_s = np.round(generator.lognormal(7.0, 1.8, num_jobs)) + 1.0
    gap_s = float(np.mean(width * run_s)) / (capacity * load)
    arrival_s = np.round(np.cumsum(generator.exponential(gap_s, num_jobs)))
    asked_s = np.round(run_s * generator.uniform(1.0, 10.0, num_jobs))
    ids = np.arange(num_jobs).astype(str).astype(object)
    agent = generator.integers(0, 64, num_jobs)
    return Jobs(ids, arrival_s, width, asked_s, run_s, np.full(num_jobs, np.nan), agent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    pool, config = Pool(CAPACITY, easy=True), OrderingConfig()
    logs = [made_jobs(seed, arguments.jobs) for seed in range(arguments.streams)]
    windows = jax.tree.map(jnp.asarray, joined([cut_whole(log, pool, config) for log in logs]))
    system = environment(ordering(pool, config), queue_response(pool, config, replayed_jobs(windows)))
    network = scorer(example_of(system), ScorerConfig((64, 32), identity=False, pooled=False))
    parameters = network.init(jax.random.key(0))
    choices = {
        "scorer": by_scorer(pool, config, partial(network.logits, parameters)),
        "fcfs": by_order(system, by_arrival),
    }
    runs = {
        name: jax.jit(lambda choose=choose: play(jax.random.key(1), system, choose, (arguments.streams,)))
        for name, choose in choices.items()
    }
    in_numpy = NumpyScorer(parameters)

    def loop() -> list[PolicyLoop]:
        loops = [
            PolicyLoop(
                columns_of(log),
                CAPACITY,
                True,
                lambda job, whole: int(np.argmax(in_numpy(job, whole))),
                num_visible=config.num_visible,
                queue_size=config.queue_size,
            )
            for log in logs[:NUM_COMPARED]
        ]
        for one in loops:
            one.play()
        return loops

    ended = {name: jax.block_until_ready(run()) for name, run in runs.items()}
    best, best_cpu = least_s({**runs, "loop": loop}, arguments.repeats)
    num_loop = sum(len(one.decided_at) for one in loop())
    result = {"streams": arguments.streams, "jobs": arguments.jobs, "target": TARGET}
    for name, state in ended.items():
        started = int(np.sum(np.asarray(state.problem.num_started)))
        result[f"{name}_jobs_per_s"] = round(started / best[name])
        result[f"{name}_steps"] = int(state.step)
    result["loop_jobs_per_s"] = round(NUM_COMPARED * arguments.jobs / best["loop"])
    result["loop_decisions_per_s"] = round(num_loop / best["loop"])
    result["ratio"] = round(result["scorer_jobs_per_s"] / result["loop_jobs_per_s"], 1)
    share = NUM_COMPARED / arguments.streams
    result["ratio_of_cpu_time"] = round(best_cpu["loop"] / (best_cpu["scorer"] * share), 1)
    if arguments.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:<22}{value:,}")


if __name__ == "__main__":
    main()
