"""The schedulers of a comparison: rules that look at no load, list scheduling, insertion, and trained ones."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evaluation.comparison.entries import PolicyFacts
from evaluation.judges.named import RAISED
from evaluation.judges.user_policies import EnteredPolicies, Takes, UserPolicy, enter, raised, words_of
from evaluation.simulator.rounds import PlayedRounds, QueueBooks, Region, Solver, play_at_once, play_together
from logs_schema.errors import ConfigError
from logs_schema.product import read_manifest
from offline_rl.assignment.assigner import Assigner, load_assigner
from offline_rl.assignment.insertion import insertion
from offline_rl.assignment.local_search import insertion_local_search
from offline_rl.assignment.rungs import NETWORK, SEARCHED
from offline_rl.assignment.simple import best_of_random
from offline_rl.assignment.training import assigner_of
from twin.assignment.types import Costs

AT_ONCE, HISTORY, ALONE = "at_once", "history", "insertion_at_once"
SIGNATURE = (
    "a function (costs) -> edges: costs a twin.assignment.types.Costs of a round (work_s, transfer_s, result_s "
    "[requests, edges], source [requests], backlogs local_s, arriving_s, transferred_s, returning_s [edges]), edges "
    "[requests] whole numbers where work_s is finite"
)
WORDS = {
    HISTORY: "every request at once on the node of the log",
    AT_ONCE: "list scheduling: every request at once where its answer is expected first",
    ALONE: "the objective of rounds without their wait: every request at once, as in a round of its own",
    "local": "every request at once on the quickest node of its own site",
    "predicted": "every request at once on the quickest node of the site where its agent usually is",
    "random_1": "rounds: one random assignment",
    "random_100": "rounds: the best of 100 random assignments by the objective",
    "insertion": "rounds: insertion on the exact objective, largest first",
    SEARCHED: "rounds: the same, then local search to the first local optimum",
    NETWORK: "rounds: the trained network decides where the local search begins; all its seeds",
}

MadeSolver = Callable[[np.random.Generator], Solver]
"""(generator) -> scheduler of one round."""


class ComparedAssigner(NamedTuple):
    """A policy of a comparison: one player for each of its seeds.

    Attributes:
        facts: Name, kind, description.
        players: (region, edges fixed beforehand, seconds between rounds, generator) -> what became of the requests.
        is_users: Whether an error of it leaves it out, instead of ending the comparison.
        solvers: What decides a round, for each seed; none of a policy that decides request by request.
    """

    facts: PolicyFacts
    players: Sequence[Callable[[Region, "FixedEdges", float, np.random.Generator], PlayedRounds]]
    is_users: bool = False
    solvers: Sequence[MadeSolver] = ()


class FixedEdges(NamedTuple):
    """Edges that requests go to whatever the load; [requests], -1 where a rule names none."""

    history: np.ndarray
    local: np.ndarray
    predicted: np.ndarray | None  # None where no agent of the log is at several sites


def compared_assigners(
    policy: Path | None, users: Mapping[str, UserPolicy]
) -> tuple[list[ComparedAssigner], EnteredPolicies[MadeSolver]]:
    """Rules, the schedulers of a training, and the user's own; the latter also as they were entered.

    Raises:
        ConfigError: A name of the user's is taken.
    """
    found = [_fixed(name) for name in (HISTORY, "local", "predicted")]
    found.append(
        _player(AT_ONCE, "baseline", [lambda region, _fixed, _interval_s, _rng: play_at_once(region)])
    )
    found.append(_player(ALONE, "baseline", [_alone]))
    solvers: dict[str, MadeSolver] = {
        "random_1": lambda rng: lambda costs: best_of_random(rng, costs, 1),
        "random_100": lambda rng: lambda costs: best_of_random(rng, costs, 100),
        "insertion": lambda _rng: insertion,
        SEARCHED: lambda _rng: insertion_local_search,
    }
    found += [
        _in_rounds(PolicyFacts(name, "baseline", WORDS[name]), [make]) for name, make in solvers.items()
    ]
    seeds = [] if policy is None else read_manifest(policy, "policy").extra["seeds"]
    if policy is not None and seeds:
        trained = [assigner_of(policy, f"{NETWORK}-{seed}") for seed in seeds]
        facts = PolicyFacts(NETWORK, "trained", WORDS[NETWORK])
        found.append(_in_rounds(facts, [_by(one) for one in trained]))
    takes = Takes(SIGNATURE, _users, bundle=lambda _name, folder: _by(load_assigner(folder)))
    entered = enter(users, [one.facts.name for one in found], takes)
    for name, make in entered.ready.items():
        facts = PolicyFacts(name, "baseline", words_of(users[name]))
        found.append(_in_rounds(facts, [make], is_users=True))
    return found, entered


def _player(name: str, kind: str, players: Sequence[Callable[..., PlayedRounds]]) -> ComparedAssigner:
    return ComparedAssigner(PolicyFacts(name, kind, WORDS[name]), players)


def _in_rounds(facts: PolicyFacts, solvers: Sequence[MadeSolver], is_users: bool = False) -> ComparedAssigner:
    return ComparedAssigner(facts, [_together(make) for make in solvers], is_users, solvers)


def _together(make: MadeSolver) -> Callable[..., PlayedRounds]:
    return lambda region, _fixed, interval_s, rng: play_together(region, interval_s, make(rng))


def _alone(region: Region, _fixed: FixedEdges, _interval_s: float, _rng: np.random.Generator) -> PlayedRounds:
    def choose(books: QueueBooks, request: int, _now_s: float) -> int:
        return int(insertion(books.costs(np.array([request])))[0])

    return play_at_once(region, choose)


def _by(assigner: Assigner) -> MadeSolver:
    return lambda rng: lambda costs: assigner.assign(costs, rng=rng)


def _fixed(name: str) -> ComparedAssigner:
    """A rule that looks at no load; where its edge is not there, the quickest one that is."""

    def play(
        region: Region, fixed: FixedEdges, _interval_s: float, _rng: np.random.Generator
    ) -> PlayedRounds:
        wanted: np.ndarray = getattr(fixed, name)

        def choose(books: QueueBooks, request: int, _now_s: float) -> int:
            work_s, edge = books.work_s(request), int(wanted[request])
            return edge if edge >= 0 and np.isfinite(work_s[edge]) else int(np.argmin(work_s))

        return play_at_once(region, choose)

    return _player(name, "history" if name == HISTORY else "baseline", [play])


def _users(name: str, function: Callable[..., Any]) -> MadeSolver:
    def solve(costs: Costs) -> np.ndarray:
        is_there = np.isfinite(costs.work_s)  # the function may write to its argument
        try:
            edge = np.asarray(function(costs))
        except RAISED as error:  # of a function of the user's: anything
            raise raised(name, error, signature=SIGNATURE) from error
        rows = np.arange(len(costs.source))
        if edge.shape != rows.shape or not np.issubdtype(edge.dtype, np.integer):
            raise ConfigError(f"policy {name!r} returns {edge.dtype} {list(edge.shape)}", allowed=SIGNATURE)
        inside = (edge >= 0) & (edge < is_there.shape[1])
        if not inside.all() or not is_there[rows, edge].all():
            raise ConfigError(f"policy {name!r} chose an edge that is not there", allowed=SIGNATURE)
        return edge

    return lambda _rng: solve
