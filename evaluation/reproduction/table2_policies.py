"""The policies of the main table: how each decides, and how several of them are played by one compiled program."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.judges.descriptions import LADDER
from evaluation.reproduction.simulated_days import DayShares
from offline_rl.recipes.schedulers import Schedulers, policy_params
from twin.contracts import PyTree

TWIN, RANDOM = "twin", "random"


class Table2Policy(NamedTuple):
    """A policy of the table: how it decides, and its parameters, leaves [seeds, ...]."""

    name: str
    kind: str
    params: PyTree


def policies_of(schedulers: Schedulers) -> list[Table2Policy]:
    """Every policy except the reference."""
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[None], schedulers.clone)
    plain = [
        Table2Policy(name, name, one)
        for name in (RANDOM, "least_loaded", "behaviour", "least_expected_delay", *schedulers.rules)
    ]
    learned = [Table2Policy(name, "greedy", params) for name, params in schedulers.from_logs.items()]
    clones = [Table2Policy("bc", "sampled", one), Table2Policy("bc_greedy", "greedy", one)]
    found = [*plain, *clones, *learned, Table2Policy(TWIN, "greedy", schedulers.trained)]
    if schedulers.ladder:
        name, row = schedulers.chosen
        is_rule = name in schedulers.rules
        params = (
            one
            if is_rule
            else jax.tree.map(lambda leaf: np.asarray(leaf)[None], policy_params(schedulers, name, row))
        )
        found.append(Table2Policy(LADDER, name if is_rule else "greedy", params))
    return found


def by_need(policies: Sequence[Table2Policy]) -> tuple[list[Table2Policy], list[Table2Policy]]:
    """Greedy networks, and the others; those have one seed each."""
    return (
        [one for one in policies if one.kind == "greedy"],
        [one for one in policies if one.kind != "greedy"],
    )


def together(policies: Sequence[Table2Policy]) -> PyTree:
    """The parameters of some policies side by side, leaves [all their seeds, ...]."""
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *(one.params for one in policies))


def dealt(simulated: DayShares, members: Sequence[Table2Policy]) -> list[DayShares]:
    """The rows of one call, given back to their policies."""
    ends = np.cumsum([len(jax.tree.leaves(one.params)[0]) for one in members])[:-1]
    parts = (np.split(np.asarray(leaf, float), ends) for leaf in simulated)
    return [DayShares(*leaves) for leaves in zip(*parts, strict=True)]
