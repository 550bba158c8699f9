"""Users' policies in a comparison: functions of the type `twin.contracts.Policy`, given directly or as
`module:function`.

The output shape of a policy is checked before the comparison. A policy that raises, returns actions of the wrong shape
or chooses nodes that are not legal is refused by name, and the others are evaluated. A function that JAX cannot trace
(plain NumPy, a table lookup) is called on the host at every step: slower, with the same result.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.baselines import Baseline
from evaluation.judges.contender import Contender, load_contender
from evaluation.judges.host_policy import HostPolicy, form_of
from evaluation.judges.named import NamedOption, error_in_words, read_named, refuse_taken
from evaluation.judges.players import GREEDY, Player, of_policy
from evaluation.judges.windows import Candidate, Evaluation, Judge
from logs_schema.errors import ConfigError, SchedtwinError
from offline_rl.api import Trained
from offline_rl.networks import Actor, Example
from twin.contracts import Array, Policy
from twin.ordering.rules import Rule
from twin.placement.encoding import Encoding

SIGNATURE = (
    "a function (key, observation, legal) -> action: observation.node [features, nodes, seats, *streams], "
    "observation.request [features, seats, *streams], legal [nodes, seats, *streams] bool, action [seats, *streams] of "
    "whole numbers"
)
_UNTRACEABLE = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerBoolConversionError,
    jax.errors.TracerIntegerConversionError,
)


UserPolicy = Policy | Baseline | Rule | Trained | Path
"""A function, a rule for a cluster, a rule of a queue, a result of `offline_rl.train`, or the folder of a bundle."""


NAMED = NamedOption(
    "--policy", "policy", SIGNATURE, lambda found: callable(found) or isinstance(found, Baseline | Rule), "BUNDLE"
)  # fmt: skip


def named_policies(texts: Sequence[str], here: Path = Path()) -> dict[str, UserPolicy]:
    """Policies written as `name=module:function` or `name=folder of a bundle`; ConfigError as of `read_named`."""
    return read_named(texts, NAMED, here)


@dataclass
class PolicyEntries:
    """The user's policies of a comparison.

    Attributes:
        players: Name -> player, for every judge.
        bundles: Name -> bundle with another encoding than the twin's; only judges of the log's own windows can play it.
        trained: Name -> trained policy; every seed is evaluated.
        hosted: Name -> the players that are called on the host.
        words: Name -> description of the policy.
        refused: Name -> error for which it is left out; the evaluation adds to it.
    """

    players: dict[str, Player] = field(default_factory=dict)
    bundles: dict[str, Contender] = field(default_factory=dict)
    trained: dict[str, Trained] = field(default_factory=dict)
    hosted: dict[str, HostPolicy] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    refused: dict[str, SchedtwinError] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all policies that are evaluated."""
        return (*self.players, *self.bundles, *self.trained)

    @property
    def network(self) -> Actor | None:
        """Network of the trained policies, which all have the same; None without any."""
        return next((one.network for one in self.trained.values()), None)

    def seeds(self) -> list[Candidate]:
        """Every seed of the trained policies."""
        return [
            Candidate(name, GREEDY, one.params_of(seed))
            for name, one in self.trained.items()
            for seed in one.seeds
        ]

    def window_players(self) -> dict[str, Player]:
        """The players for judges of the log's own windows."""
        return {**self.players, **{name: bundle.player(name) for name, bundle in self.bundles.items()}}


def words_of(policy: UserPolicy) -> str:
    """What a report says of a user's function or bundle."""
    return f"the bundle {policy}" if isinstance(policy, Path) else "a policy of the user"


def function_of(name: str, policy: UserPolicy, signature: str) -> Callable[..., Any]:
    """The user's function; ConfigError where the policy is none."""
    if not callable(policy):
        raise ConfigError(f"policy {name!r} is no function", where="--policy", allowed=signature)
    return policy


def enter(
    policies: Mapping[str, UserPolicy], encoding: Encoding, example: Example, taken: Sequence[str]
) -> PolicyEntries:
    """Prepares the user's policies for the judges; the output shape of each is checked.

    Args:
        policies: Name -> function, baseline or folder of a bundle.
        encoding: Encoding of the evaluated system.
        example: Input shapes of a policy.
        taken: Names of the comparison's own policies.

    Returns:
        The policies that can be evaluated, and the errors of the others.

    Raises:
        ConfigError: a name is taken.
    """
    refuse_taken(policies, taken)
    entered = PolicyEntries()
    for name, policy in policies.items():
        try:
            _enter_one(entered, name, policy, encoding, example)
        except SchedtwinError as error:
            entered.refused[name] = error
    return entered


def _enter_one(
    entered: PolicyEntries, name: str, policy: UserPolicy, encoding: Encoding, example: Example
) -> None:
    if isinstance(policy, Trained):
        kinds = {one.network_name for one in entered.trained.values()}
        if kinds - {policy.network_name}:
            raise ConfigError(
                f"policy {name!r} has a network of another kind than the others", allowed="one kind of network",
                advice="compare a single seed of it as a function: trained.policy(seed)",
            )  # fmt: skip
        entered.words[name] = f"{policy.name}; all seeds"
        entered.trained[name] = policy
        return
    if isinstance(policy, Rule):
        raise ConfigError(f"policy {name!r} is a rule of queues", allowed=SIGNATURE)
    if not isinstance(policy, Path):
        rule = policy.policy(encoding.cluster) if isinstance(policy, Baseline) else policy
        ready = tried(name, rule, example)
        entered.players[name] = of_policy(ready)
        if isinstance(ready, HostPolicy):
            entered.hosted[name] = ready
        entered.words[name] = policy.description if isinstance(policy, Baseline) else "a policy of the user"
        return
    bundle = load_contender(policy, encoding)
    entered.words[name] = f"the bundle {bundle.content_hash[:12]}"
    if bundle.has_encoding(encoding):
        entered.players[name] = bundle.player(None)
    else:
        entered.bundles[name] = bundle


def tried(name: str, policy: Policy, example: Example, signature: str = SIGNATURE) -> Policy:
    """Checks a policy on the input shapes.

    Args:
        name: Name of the policy.
        policy: The user's function.
        example: Input shapes of a policy of the problem.
        signature: Signature of a policy of the problem, for messages.

    Returns:
        The policy, as a `HostPolicy` where JAX cannot trace it.

    Raises:
        ConfigError: The policy raises, or returns another shape or type.
    """
    streams = 3
    seen, legal = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct((*leaf.shape, streams), leaf.dtype),
        (example.observation, example.legal),
    )
    wanted = jax.ShapeDtypeStruct(legal.shape[1:], jnp.int32)
    try:
        answer = jax.eval_shape(policy, jax.random.key(0), seen, legal)
    except _UNTRACEABLE:
        return _tried_on_host(name, HostPolicy(policy), seen, legal, signature)
    except Exception as error:  # of a function of the user's: anything
        raise raised(name, error, signature=signature) from error
    if getattr(answer, "shape", None) != wanted.shape or not np.issubdtype(answer.dtype, np.integer):
        raise ConfigError(
            f"policy {name!r} returns {form_of(answer)} where whole numbers {list(wanted.shape)} are required",
            where=f"observations of {legal.shape[0]} choices, {legal.shape[1]} seat and {streams} streams",
            allowed=signature,
        )
    return lambda key, observation, legal: policy(key, observation, legal).astype(jnp.int32)


def _tried_on_host(
    name: str, policy: HostPolicy, seen: Any, legal: jax.ShapeDtypeStruct, signature: str
) -> HostPolicy:
    observation = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), seen)
    jax.block_until_ready(policy(jax.random.key(0), observation, jnp.ones(legal.shape, legal.dtype)))
    if policy.error is not None:
        raise raised(name, policy.error, signature=signature) from policy.error
    return policy


def evaluate(
    judge: Judge, key: Array, candidates: Sequence[Candidate], entered: PolicyEntries, shift_days: int
) -> list[tuple[Candidate, Evaluation]]:
    """Evaluates candidates by a judge; the user's policies run one by one, so that an error of one leaves the others.

    A policy that raises, or makes an illegal choice, is refused from then on.
    """
    alone = {*entered.players, *entered.bundles}
    own = [one for one in candidates if one.name not in alone]
    found = list(zip(own, judge.evaluate(key, own), strict=True)) if own else []
    for one in candidates:
        if one.name not in alone or one.name in entered.refused:
            continue
        where = f"{judge.name}, shift {shift_days}d"
        result = judge.evaluate(key, [one])[0]
        host = entered.hosted.get(one.name)
        if host is not None and host.error is not None:
            entered.refused[one.name] = raised(one.name, host.error, where)
            continue
        if result.num_illegal:
            entered.refused[one.name] = ConfigError(
                f"policy {one.name!r} chose a node that is not legal in {result.num_illegal:,} of "
                f"{result.decisions.num_rows:,} decisions",
                where=where, allowed="nodes where `legal` is true",
                advice="mask the choice, for example with evaluation.baselines.baseline.best_legal",
            )  # fmt: skip
            continue
        found.append((one, result))
    return found


def raised(name: str, error: Exception, where: str = "", signature: str = SIGNATURE) -> ConfigError:
    """The error for a policy that raised one."""
    return ConfigError(f"policy {name!r} raised {error_in_words(error)}", where=where, allowed=signature)
