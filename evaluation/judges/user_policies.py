"""Users' policies in a comparison: functions of the type `twin.contracts.Policy`, bundles, rules and trainings, given
directly or by name.

Every problem enters them by `enter`, which leaves out by name what it cannot take. A function's output shape is checked
before the comparison (`tried`). A function that JAX cannot trace (plain NumPy, a table lookup) is called on the host at
every step: slower, with the same result.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.baselines import Baseline
from evaluation.comparison.comparison import Comparison
from evaluation.judges.host_policy import HostPolicy, WrongAnswerError, failure_in_words
from evaluation.judges.named import RAISED, NamedOption, read_named, refuse_taken
from evaluation.judges.slot_policies import SlotPolicies
from logs_schema.errors import ConfigError, SchedtwinError
from offline_rl.api import Trained
from offline_rl.bundle import read_bundle
from offline_rl.contract import read_contract
from offline_rl.networks import Example
from twin.contracts import Policy
from twin.ordering.rules import Rule

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

UserPolicy = Policy | Baseline | Rule | SlotPolicies | Trained | Path
"""A function, a rule for a cluster, a rule of a queue, both sides of a policy by slots, a result of `offline_rl.train`,
or the folder of a bundle."""
Ready = TypeVar("Ready")

NAMED = NamedOption(
    "--policy",
    "policy",
    f"what the problem plays; of placement {SIGNATURE}",
    lambda found: callable(found) or isinstance(found, Baseline | Rule | SlotPolicies),
    "BUNDLE",
)


def named_policies(texts: Sequence[str], here: Path = Path()) -> dict[str, UserPolicy]:
    """Policies written as `name=module:function` or `name=folder of a bundle`; ConfigError as of `read_named`."""
    return read_named(texts, NAMED, here)


@dataclass(frozen=True)
class Takes(Generic[Ready]):
    """The kinds of policies of the user's that a problem takes, each with (name, policy) -> what its judges play.

    Attributes:
        signature: What a policy of the problem is, for messages.
        function, bundle, trained, rule, baseline, slots: None: the problem takes none of this kind. Each may raise a
            SchedtwinError, which leaves the policy out.
    """

    signature: str
    function: Callable[[str, Callable[..., Any]], Ready]
    bundle: Callable[[str, Path], Ready] | None = None
    trained: Callable[[str, Trained], Ready] | None = None
    rule: Callable[[str, Rule], Ready] | None = None
    baseline: Callable[[str, Baseline], Ready] | None = None
    slots: Callable[[str, SlotPolicies], Ready] | None = None


@dataclass(frozen=True)
class EnteredPolicies(Generic[Ready]):
    """The user's policies of a comparison: name -> what judges play, or the error for which it is left out."""

    ready: dict[str, Ready] = field(default_factory=dict)
    refused: dict[str, SchedtwinError] = field(default_factory=dict)

    def left_out_of(self, comparison: Comparison) -> Comparison:
        """The comparison, which names those that were refused."""
        refused = {name: str(error) for name, error in self.refused.items()}
        return replace(comparison, refused={**comparison.refused, **refused})


def enter(
    policies: Mapping[str, UserPolicy], taken: Collection[str], takes: Takes[Ready]
) -> EnteredPolicies[Ready]:
    """Prepares the user's policies for the judges of a problem.

    Args:
        policies: Name -> policy.
        taken: Names of the comparison's own policies.
        takes: What the problem takes.

    Returns:
        The policies that can be evaluated, and the errors of the others.

    Raises:
        ConfigError: A name is taken.
    """
    refuse_taken(policies, taken)
    entered: EnteredPolicies[Ready] = EnteredPolicies()
    for name, policy in policies.items():
        try:
            entered.ready[name] = _ready(name, policy, takes)
        except SchedtwinError as error:
            entered.refused[name] = naming(name, error)
    return entered


def naming(name: str, error: SchedtwinError) -> SchedtwinError:
    """The error about a policy, which names it as it was given."""
    if repr(name) in error.what:
        return error
    what = f"policy {name!r}: {error.what}"
    return type(error)(what, where=error.where, allowed=error.allowed, advice=error.advice)


def lacking_bundles(policies: Mapping[str, UserPolicy]) -> dict[str, SchedtwinError]:
    """The policies that will be left out because their folders hold no bundle: name -> error."""
    found: dict[str, SchedtwinError] = {}
    for name, folder in policies.items():
        try:
            if isinstance(folder, Path):
                read_bundle(folder)
        except SchedtwinError as error:
            found[name] = naming(name, error)
    return found


def _ready(name: str, policy: Any, takes: Takes[Ready]) -> Ready:
    kinds: tuple[tuple[type, str, Callable[[str, Any], Ready] | None], ...] = (
        (Path, "the folder of a bundle", takes.bundle),
        (Trained, "a result of offline_rl.train", takes.trained),
        (Rule, "a rule of queues", takes.rule),
        (Baseline, "a rule of placement", takes.baseline),
        (SlotPolicies, "a dispatcher and an orchestrator", takes.slots),
    )
    for kind, words, make in kinds:
        if isinstance(policy, kind):
            if make is None:
                raise ConfigError(f"policy {name!r} is {words}", where="--policy", allowed=takes.signature)
            return make(name, policy)
    if not callable(policy):
        advice = "a folder of a bundle is given as pathlib.Path" if isinstance(policy, str) else ""
        raise ConfigError(
            f"policy {name!r} is no function",
            where=repr(policy)[:200],
            allowed=takes.signature,
            advice=advice,
        )
    return takes.function(name, policy)


def with_training_days(comparison: Comparison, policies: Mapping[str, UserPolicy]) -> Comparison:
    """The comparison, which names the bundles of the user's that were trained on test days, or later ones."""
    notes = []
    for one in comparison.policies:
        folder = policies.get(one.name)
        last_day = read_contract(folder).trained_on.get("last_day", "") if isinstance(folder, Path) else ""
        known = [shift for shift in comparison.shifts if shift.days and shift.days[0] <= last_day]
        if known:
            shifts = ", ".join(f"{shift.shift_days}d" for shift in known)
            notes.append(
                f"{one.name} was trained on days up to {last_day}; where they are of this log, test days of the shifts "
                f"{shifts} are among them, and it may profit"
            )
    return replace(comparison, notes=(*comparison.notes, *notes))


def words_of(policy: UserPolicy) -> str:
    """What a report says of a user's policy."""
    if isinstance(policy, Trained):
        return f"{policy.name}; all seeds"
    if isinstance(policy, Baseline):
        return policy.description
    return f"the bundle {policy}" if isinstance(policy, Path) else "a policy of the user"


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
    except RAISED as error:  # of a function of the user's: anything
        raise raised(name, error, signature=signature) from error
    if getattr(answer, "shape", None) != wanted.shape or not np.issubdtype(answer.dtype, np.integer):
        where = f"observations of {legal.shape[0]} choices, {legal.shape[1]} seat and {streams} streams"
        raise raised(name, WrongAnswerError(answer, wanted.shape), where, signature)
    return lambda key, observation, legal: policy(key, observation, legal).astype(jnp.int32)


def _tried_on_host(
    name: str, policy: HostPolicy, seen: Any, legal: jax.ShapeDtypeStruct, signature: str
) -> HostPolicy:
    observation = jax.tree.map(jnp.zeros_like, seen)
    jax.block_until_ready(policy(jax.random.key(0), observation, jnp.ones(legal.shape, legal.dtype)))
    if policy.error is not None:
        raise raised(name, policy.error, signature=signature) from policy.error
    return policy


def chose_illegally(name: str, num_illegal: int, num_decisions: int, where: str) -> ConfigError:
    """The error for a policy that made illegal choices while it was judged."""
    return ConfigError(
        f"policy {name!r} chose a node that is not legal in {num_illegal:,} of {num_decisions:,} decisions",
        where=where,
        allowed="nodes where `legal` is true",
        advice="mask the choice, for example with evaluation.baselines.baseline.best_legal",
    )


def raised(name: str, error: BaseException, where: str = "", signature: str = SIGNATURE) -> ConfigError:
    """The error for a policy that raised one, or returned something else than it must."""
    is_answer = isinstance(error, WrongAnswerError)
    advice = (
        "return indices of this shape and type, for example by argmax or .astype(np.int32)"
        if is_answer
        else ""
    )
    return ConfigError(
        f"policy {name!r} {failure_in_words(error)}", where=where, allowed=signature, advice=advice
    )
