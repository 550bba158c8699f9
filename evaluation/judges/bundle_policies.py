"""A policy from a bundle, to be evaluated in a system with another encoding.

A policy's contract fixes its vocabularies, estimates and units of time. The evaluated system has those of a newer fit.
The policy keeps its own (`BundlePolicy.encoding`) with the current nodes; `evaluation.judges.views` translates requests
and events into it, as the server's runner does.
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.judges.players import Player, PlayerInput
from logs_schema.calendar import EPOCH_DATE
from logs_schema.errors import ConfigError, first
from offline_rl.bundle import read_network
from offline_rl.contract import PolicyContract
from offline_rl.distributions import greedy
from offline_rl.export import original, params_of
from offline_rl.networks import Actor
from offline_rl.runner import Policy, load_network
from offline_rl.runner.setting import PlacementSetting
from twin.contracts import Array, PyTree
from twin.placement.bookkeeping import placement
from twin.placement.cold_starts import ColdStarts
from twin.placement.encoding import Encoding
from twin.placement.run_filter import RunDynamics
from twin.placement.run_habits import RunHabits
from twin.placement.run_labels import run_labels_of
from twin.placement.service_times import OFFER_KINDS
from twin.placement.timeouts import Timeouts
from twin.placement.types import Cluster, Observation


class OtherSystemError(ConfigError):
    """The policy was trained for another system than the one it is to be evaluated in."""


@dataclass(frozen=True)
class BundlePolicy:
    """A policy of a bundle.

    Attributes:
        content_hash: Content hash of the bundle.
        network: The network.
        params: The network's parameters.
        encoding: Encoding of its features; nodes in the evaluated system's order.
        order: [choices] index of the evaluated system's node for every choice of the network.
    """

    content_hash: str
    network: Actor
    params: PyTree
    encoding: Encoding
    order: tuple[int, ...]

    def decide(self, params: PyTree, seen: Observation, legal: Array) -> Array:
        """The greedy decision.

        Args:
            params: `self.params`, as an argument of a compiled program.
            seen: Observation in its own encoding, leaves [features, nodes, seats, *streams], [features, seats, ...].
            legal: [nodes, seats, *streams].

        Returns:
            [seats, *streams] int32, indices of the evaluated system's nodes.
        """
        order = jnp.asarray(self.order, jnp.int32)
        logits = self.network.logits(params, (seen.node[:, order], seen.request), legal[order])
        return order[greedy(logits)]

    def player(self, name: str | None) -> Player:
        """The policy as a player.

        Args:
            name: Its name in `views.ViewStates.others`; None where the evaluated system has the same encoding.
        """
        observe = placement(self.encoding.cluster, self.encoding.problem).observe

        def play(_params: PyTree, _key: Array, seen: PlayerInput, legal: Array) -> Array:
            observation = seen.observation if name is None else observe(seen.state.others[name])
            return self.decide(self.params, observation, legal)

        return play

    def has_encoding(self, judged: Encoding) -> bool:
        """Whether its encoding equals that of the evaluated system."""
        return self.encoding.to_json() == judged.to_json()


def load_bundle_policy(bundle: Path, judged: Encoding) -> BundlePolicy:
    """Loads the policy of a bundle for a system.

    Raises:
        OtherSystemError: It was trained for other nodes and cannot decide for these.
        ProductError: The bundle is damaged, or is not a placement policy with features of this version.
    """
    policy = Policy(load_network(bundle))
    contract, names = policy.contract, judged.cluster.node_names
    if contract.network.any_choices:
        contract = replace(contract, choices=names)
    refuse_other_nodes(contract, judged.cluster, bundle)
    params = params_of(read_network(bundle, policy.contract))
    return BundlePolicy(
        policy.content_hash,
        original(contract),
        jax.tree.map(jnp.asarray, params),
        encoding_of(policy.setting, judged),
        tuple(names.index(name) for name in contract.choices),
    )


def refuse_other_nodes(contract: PolicyContract, cluster: Cluster, bundle: Path) -> None:
    """Raises OtherSystemError unless a policy's choices are the nodes of a cluster, in any order."""
    gone = sorted(set(contract.choices) - set(cluster.node_names))
    fresh = sorted(set(cluster.node_names) - set(contract.choices))
    if gone or fresh:
        differences = [f"removed since: {first(gone)}"] if gone else []
        differences += [f"new: {first(fresh)}"] if fresh else []
        raise OtherSystemError(
            "the bundle was trained for other nodes",
            where=f"{bundle}: {'; '.join(differences)}",
            allowed=", ".join(cluster.node_names),
            advice="train and export a policy for this system",
        )


def encoding_of(setting: PlacementSetting, judged: Encoding) -> Encoding:
    """A contract's setting as an encoding of the evaluated system: the contract's vocabularies and scales, the current
    nodes.

    A node whose site is not in the contract gets the site of its name in the contract, else the contract's first site.
    """
    cluster, names = judged.cluster, judged.cluster.node_names
    known = {node.name: node for node in setting.nodes}
    sites = [cluster.sites[index] for index in cluster.site_of_node]
    site_names = [
        site if site in setting.sites else known[name].site if name in known else setting.sites[0]
        for name, site in zip(names, sites, strict=True)
    ]
    rules = [
        [True] * len(names),
        *([name in allowed for name in names] for allowed in setting.candidate_sets[1:]),
    ]
    variances = [
        known[name].run_variance if name in known else setting.run_variance_elsewhere for name in names
    ]
    ratios = [known[name].run_ratio if name in known else setting.run_ratio_elsewhere for name in names]
    seen_as = replace(
        cluster,
        site_of_node=np.array([setting.sites.index(site) for site in site_names]),
        sites=setting.sites,
        scenarios=setting.scenarios,
        services=setting.services,
        kinds_by=setting.kinds_by,
        queues=setting.queues,
        rules=np.array(rules, bool),
        run_ratio=np.array(ratios).T,
        run_variance=np.array(variances).T,
        dynamics=RunDynamics() if setting.dynamics is None else RunDynamics(**vars(setting.dynamics)),
        cold=_cold_starts(setting, names),
        hazard=() if (hazard := setting.hazard_of(names)) is None else tuple(hazard.tolist()),
        timeouts=None if setting.timeouts is None else Timeouts(**setting.timeouts._asdict()),
        agents=tuple(setting.acceptance_of_agent),
        acceptance_of_agent=np.array(list(setting.acceptance_of_agent.values())).reshape(
            -1, len(OFFER_KINDS)
        ),
        acceptance_of_scenario=np.array(setting.acceptance_of_scenario),
        knows_week=setting.knows_week,
    )
    problem = replace(
        judged.problem,
        time_unit_s=setting.time_unit_s,
        memory_s=setting.memory_s,
        view="full" if setting.sees_all else "summary",
    )
    days = judged.train_days
    # The encoding uses only the time elapsed since then
    if setting.trained_until_s != judged.trained_until_s:
        days = (EPOCH_DATE + dt.timedelta(seconds=setting.trained_until_s) - dt.timedelta(days=1),)
    return replace(
        judged,
        cluster=seen_as,
        run_of_service_s=setting.run_of_service_s,
        problem=problem,
        train_days=days,
        run_labels=run_labels_of(None if setting.run_labels is None else vars(setting.run_labels)),
        nodes_of_queue={
            queue: tuple(row for row, name in enumerate(names) if name in allowed)
            for queue, allowed in setting.nodes_of_queue.items()
        },
        run_habits=_run_habits(setting),
    )


def _run_habits(setting: PlacementSetting) -> RunHabits | None:
    known, requested = setting.run_habits or {}, setting.requested_runs
    if not known and requested is None:
        return None
    of_agent = np.array(list(known.values())).reshape(-1, len(setting.services)).T
    habits = RunHabits(tuple(known), of_agent)
    if requested is None:
        return habits
    return replace(habits, exponent=requested.exponent, typical_s=np.array(requested.typical_s))


def _cold_starts(setting: PlacementSetting, names: Sequence[str]) -> ColdStarts | None:
    """The start-ups that a bundle knows, on nodes of these names."""
    if setting.cold is None:
        return None
    of_nodes = setting.cold.of_rows(setting.places_of(names))
    return ColdStarts(setting.cold.memory_s, np.array(setting.cold.startup_s), *(of_nodes or ()))
