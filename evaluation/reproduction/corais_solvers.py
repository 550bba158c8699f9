"""The solvers of CoRaiS's tables by name, and those that stand beside them."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from offline_rl.assignment.by_regions import by_regions, neighbouring
from offline_rl.assignment.corais import corais_logits
from offline_rl.assignment.decoding import DecodingConfig, best_of_samples, decode, greedy
from offline_rl.assignment.exact import exact
from offline_rl.assignment.insertion import insertion
from offline_rl.assignment.layers import Params
from offline_rl.assignment.local_search import LocalSearchConfig, improve, insertion_local_search
from offline_rl.assignment.priced import pairs_of, priced_logits
from offline_rl.assignment.rounding import lp_rounding
from offline_rl.assignment.simple import best_of_random, local, predicted
from twin.assignment.types import AssignmentInstance

CORAIS, OURS = "corais", "ours"


class SolverAnswer(NamedTuple):
    """What a solver says of one instance."""

    edge: np.ndarray  # [Z] the edge of every request
    bound_s: float = 0.0  # what it has shown that no assignment undercuts


Solve = Callable[[AssignmentInstance, np.random.Generator], SolverAnswer]
"""(one instance, generator) -> answer."""

MAX_EXACT_PAIRS, MAX_LP_PAIRS, MAX_ATTENTION_PAIRS = 60_000, 40_000, 250_000
"""Requests x edges up to which the exact solver, the relaxation, and attention among requests are asked; so are 1,000
samples of ours."""


def hand_written(exact_s: float, search_s: float) -> Mapping[str, Solve]:
    """The solvers that learn nothing.

    Args:
        exact_s: Time limit of the exact solver and of the relaxation.
        search_s: Time limit of the local search with restarts.
    """
    search = LocalSearchConfig(time_s=search_s, restarts=True)
    plain: dict[str, Callable[[AssignmentInstance, np.random.Generator], np.ndarray]] = {
        "local": lambda instance, _: local(instance.costs),
        "predicted": lambda instance, _: predicted(instance.costs, instance.requests.predicted),
        "random_1": partial(_random, 1),
        "random_100": partial(_random, 100),
        "random_1000": partial(_random, 1000),
        "insertion": lambda instance, _: insertion(instance.costs),
        "insertion_by_regions": lambda instance, _: by_regions(
            instance.costs, neighbouring(instance.edges.xy, round(instance.edges.xy.shape[0] ** 0.5))
        ),
        "insertion_local_search": lambda instance, _: insertion_local_search(instance.costs),
        "insertion_local_search_restarts": lambda instance, rng: improve(
            instance.costs, insertion(instance.costs), search, rng
        ),
        "lp_rounding": lambda instance, _: lp_rounding(instance.costs, exact_s),
    }
    return {name: answering(solver) for name, solver in plain.items()} | {"exact": partial(_exact, exact_s)}


def answering(solver: Callable[[AssignmentInstance, np.random.Generator], np.ndarray]) -> Solve:
    """A solver that shows no bound."""
    return lambda instance, rng: SolverAnswer(solver(instance, rng))


def learned(name: str, params: Params, search_s: float) -> Mapping[str, Solve]:
    """The solvers that a trained network makes.

    Args:
        name: Of the network: "ours", or CoRaiS and its ablations.
        params: Its parameters.
        search_s: Time limit of ours, local search included.
    """
    if name == OURS:
        config = DecodingConfig(search=LocalSearchConfig(time_s=search_s, restarts=True))
        ours: dict[str, Callable[[AssignmentInstance, np.random.Generator], np.ndarray]] = {
            f"{OURS}_greedy": lambda instance, _: greedy(priced_logits(params, pairs_of(instance.costs))),
            f"{OURS}_from_greedy": lambda instance, _: improve(
                instance.costs, greedy(priced_logits(params, pairs_of(instance.costs)))
            ),
            f"{OURS}_1000": lambda instance, rng: best_of_samples(
                rng, instance.costs, priced_logits(params, pairs_of(instance.costs)), 1000
            ),
            OURS: lambda instance, rng: decode(
                rng, instance.costs, priced_logits(params, pairs_of(instance.costs)), config
            ),
        }
        return {name: answering(solver) for name, solver in ours.items()}

    def sampled(num_samples: int, instance: AssignmentInstance, rng: np.random.Generator) -> np.ndarray:
        logits = corais_logits(params, instance.edges, instance.requests)
        return best_of_samples(rng, instance.costs, logits, num_samples)

    counts = {f"{name}_greedy": 0, f"{name}_100": 100, name: 1000}
    return {name: answering(partial(sampled, count)) for name, count in counts.items()}


def takes(name: str, num_pairs: int) -> bool:
    """Whether a solver is asked for instances of so many pairs."""
    if name.startswith(CORAIS):
        return num_pairs <= MAX_ATTENTION_PAIRS
    most = {"exact": MAX_EXACT_PAIRS, "lp_rounding": MAX_LP_PAIRS, f"{OURS}_1000": MAX_ATTENTION_PAIRS}
    return most.get(name.split("/")[0], num_pairs) >= num_pairs


def _random(num_samples: int, instance: AssignmentInstance, rng: np.random.Generator) -> np.ndarray:
    return best_of_random(rng, instance.costs, num_samples)


def _exact(time_s: float, instance: AssignmentInstance, _rng: np.random.Generator) -> SolverAnswer:
    found = exact(instance.costs, time_s)
    return SolverAnswer(found.edge, found.bound_s)
