"""The user's policies in a comparison of placements: as players, evaluated one by one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evaluation.baselines import Baseline
from evaluation.judges.bundle_policies import BundlePolicy, load_bundle_policy
from evaluation.judges.host_policy import HostPolicy
from evaluation.judges.judge import Candidate, Evaluation, Judge
from evaluation.judges.players import GREEDY, Player, of_policy
from evaluation.judges.user_policies import (
    SIGNATURE,
    Takes,
    UserPolicy,
    chose_illegally,
    enter,
    raised,
    tried,
    words_of,
)
from logs_schema.errors import ConfigError, SchedtwinError
from offline_rl.api import Trained
from offline_rl.networks import Actor, Example
from twin.contracts import Array, Policy
from twin.placement.encoding import Encoding


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
    bundles: dict[str, BundlePolicy] = field(default_factory=dict)
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


def enter_players(
    policies: Mapping[str, UserPolicy], encoding: Encoding, example: Example, taken: Sequence[str]
) -> PolicyEntries:
    """Prepares the user's policies for the judges of placement; the output shape of each is checked.

    Args:
        policies: Name -> function, baseline, training or folder of a bundle.
        encoding: Encoding of the evaluated system.
        example: Input shapes of a policy.
        taken: Names of the comparison's own policies.

    Returns:
        The policies that can be evaluated, and the errors of the others.

    Raises:
        ConfigError: A name is taken.
    """
    entries = PolicyEntries()

    def function(name: str, policy: Policy) -> str:
        ready = tried(name, policy, example)
        entries.players[name] = of_policy(ready)
        if isinstance(ready, HostPolicy):
            entries.hosted[name] = ready
        return words_of(policy)

    def baseline(name: str, policy: Baseline) -> str:
        function(name, policy.policy(encoding.cluster))
        return words_of(policy)

    def trained(name: str, policy: Trained) -> str:
        policy.refuse_other_system(example, f"policy {name!r}")
        if {one.network_name for one in entries.trained.values()} - {policy.network_name}:
            raise ConfigError(
                f"policy {name!r} has a network of another kind than the others",
                allowed="one kind of network",
                advice="compare a single seed of it as a function: trained.policy(seed)",
            )
        entries.trained[name] = policy
        return words_of(policy)

    def bundle(name: str, folder: Path) -> str:
        found = load_bundle_policy(folder, encoding)
        if found.has_encoding(encoding):
            entries.players[name] = found.player(None)
        else:
            entries.bundles[name] = found
        return f"the bundle {found.content_hash[:12]}"

    entered = enter(policies, taken, Takes(SIGNATURE, function, bundle, trained, baseline=baseline))
    entries.words |= entered.ready
    entries.refused |= entered.refused
    return entries


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
        refuse_failed(entered, where)
        if one.name in entered.refused:
            continue
        if result.num_illegal:
            entered.refused[one.name] = chose_illegally(
                one.name, result.num_illegal, result.decisions.num_rows, where
            )
            continue
        found.append((one, result))
    return found


def refuse_failed(entered: PolicyEntries, where: str) -> None:
    """Refuses the policies that raised on the host: a compiled program cannot raise and goes on with zeros."""
    for name, host in entered.hosted.items():
        if host.error is not None and name not in entered.refused:
            entered.refused[name] = raised(name, host.error, where)
