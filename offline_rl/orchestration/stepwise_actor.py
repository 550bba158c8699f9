"""The actor of orchestration: H times a node, then a change of one replica there, every choice seeing those before it.

    node    p(n)     ~ exp g(x_n, y_b, z)        over nodes that are up and not chosen yet (but see `ChangeRule`)
    change  p(l | n) ~ exp q(x_n, y_b, z, l)     over 2W + 1: none, one replica more of a service, one less

x, y, z are the embeddings of `graph_encoder`; g and q may correct a rule's scores, beginning at zero. What KaiS and
KMPS give a node as indexes of services is here a mean over services, and `l` is described by what is known of its
service, here and everywhere: so nothing is bound to how many nodes or services there are. What has been chosen in this
frame is part of the next choice's input.

Sources: Han et al. 2021, section III-B.2; Huang et al., section III-B.2.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import flax.linen as nn
import jax
import jax.numpy as jnp

from offline_rl.algorithm import Algorithm
from offline_rl.distributions import greedy, sample
from offline_rl.losses import entropy, is_choice, log_prob, mask_logits
from offline_rl.orchestration.graph_encoder import (
    Embeddings,
    GraphConfig,
    GraphEncoder,
    StackedEncoder,
    point_of_each_node,
)
from twin.contracts import Array, Policy, PyTree
from twin.legality import like_action
from twin.networks import MLP, Dense


class ChangeView(NamedTuple):
    """What is seen when replicas are changed; services without the unknown one."""

    node: Array  # [F, nodes, *batch]
    point: Array  # [G, access points, *batch]
    service: Array  # [S, services, *batch]
    pair: Array  # [K, services, nodes, *batch]
    able: Array  # [2, services, nodes, *batch] bool: a replica can be added, removed
    up: Array  # [nodes, *batch] bool: the node can be chosen


@dataclass(frozen=True)
class StepwiseConfig:
    """How changes are chosen.

    Attributes:
        graph: How the state is encoded.
        stacked: One vector instead of a graph (KMPS without GNN, KaiS figure 11b); bound to its topology.
        hidden: Widths of the hidden layers of g, q and the critics.
        filtered: Only changes that are possible at the chosen node are drawn. Otherwise any is, as in the papers, and
            the system turns what is impossible into no change.
    """

    graph: GraphConfig = field(default_factory=GraphConfig)
    stacked: bool = False
    hidden: tuple[int, ...] = (128, 64, 32)
    filtered: bool = True


class ScoredSteps(NamedTuple):
    """What a frame's choices come to under some parameters; leaves [H, *batch], contexts [width, H, *batch]."""

    node_log_prob: Array
    change_log_prob: Array
    node_entropy: Array
    change_entropy: Array
    impossible: Array  # bool: the change cannot be made at the node
    node_context: Array  # z, and the mean of x under the probabilities of the nodes
    change_context: Array  # z, and the mean of what describes a change under its probabilities


class StepwiseActor(NamedTuple):
    """The actor as pure functions."""

    init: Callable[[Array], PyTree]  # key -> params
    # (params, key or None for the likeliest, observation, legal) -> action, leaves [H, *streams]
    choose: Callable[[PyTree, Array | None, PyTree, PyTree], PyTree]
    # (params, observation, legal, action) -> what it comes to
    judge: Callable[[PyTree, PyTree, PyTree, PyTree], ScoredSteps]
    widths: tuple[int, int]  # of the contexts of nodes and of changes


ChangeRule = Callable[[ChangeView, Array], Array]
"""(view, changes made so far [services, nodes, *batch], 1 for a replica more, -1 for one less) -> logits of every
change at every node [2W + 1, nodes, *batch]. Where that of a possible change is above 0 a node can be chosen again: a
rule may ask for two changes of one node."""


class StepwiseNetwork(nn.Module):
    """g, q and what they are computed from."""

    config: StepwiseConfig
    point_of_node: tuple[int, ...]
    num_points: int

    def setup(self) -> None:
        """Names the parts."""
        graph, first = self.config.graph, self.config.hidden[0]
        self.encoder = (
            StackedEncoder(graph)
            if self.config.stacked
            else GraphEncoder(graph, self.point_of_node, self.num_points)
        )
        self.services = Dense(graph.width)
        self.node_first, self.place_first, self.change_first = Dense(first), Dense(first), Dense(first)
        self.g = MLP(self.config.hidden[1:], 1, output_scale=0.01)
        self.q = MLP(self.config.hidden[1:], 1, output_scale=0.01)

    def __call__(self, view: ChangeView) -> tuple[Array, Array]:
        """Uses every part once."""
        requested, node = jnp.zeros_like(view.service[0]), jnp.zeros(view.up.shape[1:], jnp.int32)
        embedded = self.encode(view, requested)
        return self.node_values(embedded), self.change_values(embedded, changes(view, requested, node), node)

    def encode(self, view: ChangeView, requested: Array) -> Embeddings:
        """Embeddings, given what has been requested of every service [services, *batch]."""
        num_nodes = view.node.shape[1]
        service = jnp.concatenate([view.service, requested[None]])[:, :, None]
        service = jnp.broadcast_to(service, (*service.shape[:2], num_nodes, *service.shape[3:]))
        able = view.able.astype(jnp.float32)
        hosted = nn.relu(self.services(jnp.concatenate([view.pair, able, service])))
        node = jnp.concatenate([view.node, jnp.mean(hosted, axis=1)])
        return self.encoder(node, view.point)

    def node_values(self, embedded: Embeddings) -> Array:
        """g of every node [nodes, *batch]."""
        return self.g(nn.relu(self.node_first(self._places(embedded))))[0]

    def change_values(self, embedded: Embeddings, described: Array, node: Array) -> Array:
        """q of every change [2W + 1, *batch] at the node chosen [*batch]; `described` is from `changes`."""
        place = _at(self._places(embedded), node)
        return self.q(nn.relu(self.place_first(place)[:, None] + self.change_first(described)))[0]

    def _places(self, embedded: Embeddings) -> Array:
        """[3 width, nodes, *batch]: x_n, y_b and z."""
        point = point_of_each_node(embedded.point, self.point_of_node)
        whole = jnp.broadcast_to(embedded.cluster[:, None], embedded.node.shape)
        return jnp.concatenate([embedded.node, point, whole])


def changes(view: ChangeView, requested: Array, node: Array) -> Array:
    """What describes every change [D, 2W + 1, *batch] at a node [*batch]: its sign, its service here and everywhere."""
    here = _at(jnp.moveaxis(view.pair, 1, 0), node)  # [services, K, *batch]
    service = jnp.concatenate([jnp.moveaxis(here, 0, 1), view.service, requested[None]])
    none = jnp.zeros_like(service[:, :1])

    def signed(sign: int, leaf: Array) -> Array:
        flags = [jnp.full_like(leaf[0], float(sign == one)) for one in (0, 1, -1)]
        return jnp.concatenate([jnp.stack(flags), leaf])

    return jnp.concatenate([signed(0, none), signed(1, service), signed(-1, service)], axis=1)


def possible_anywhere(view: ChangeView) -> Array:
    """[2W + 1, nodes, *batch] bool: which changes can be made at every node; none can always."""
    adds, removes = view.able
    return jnp.concatenate([jnp.ones_like(adds[:1]), adds, removes])


def possible(view: ChangeView, node: Array) -> Array:
    """[2W + 1, *batch] bool: those at a node [*batch]."""
    return _at(possible_anywhere(view), node)


def stepwise_actor(
    example: ChangeView,
    read: Callable[[PyTree, PyTree], ChangeView],
    point_of_node: tuple[int, ...],
    num_changes: int,
    config: StepwiseConfig | None = None,
    rule: ChangeRule | None = None,
) -> StepwiseActor:
    """The actor of an orchestrator that changes `num_changes` replicas a frame.

    Args:
        example: Shapes of what is seen, without batch axes.
        read: (observation, legal) of a problem, leaves [..., seats, *batch] -> what is seen, the same for all seats.
        point_of_node: [nodes] access point of every node.
        num_changes: H, the number of seats.
        config: See `StepwiseConfig`.
        rule: Scores that are corrected: a node has that of its best possible change.

    Returns:
        The actor. Actions have two leaves [H, *streams]: node, and change counted as in `changes`.
    """
    config = config or StepwiseConfig()
    network = StepwiseNetwork(config, point_of_node, example.point.shape[1])

    def compute(method: str, params: PyTree, *inputs: PyTree) -> Array:
        return cast(Array, network.apply(params, *inputs, method=method))

    def steps(params: PyTree, view: ChangeView, pick: Callable[[int, Array], Array]) -> list[tuple]:
        """(node logits, node, change logits, change, described, embeddings, possible) of every choice in turn."""
        made, free, found = jnp.zeros_like(view.pair[0]), view.up, []
        for index in range(num_changes):
            requested = jnp.sum(made, axis=1)
            embedded = cast(Embeddings, network.apply(params, view, requested, method="encode"))
            values = compute("node_values", params, embedded)
            base = None if rule is None else rule(view, made)
            node_logits = _node_logits(view, values, free, base)
            node = pick(2 * index, node_logits)
            described, able = changes(view, requested, node), possible(view, node)
            values = compute("change_values", params, embedded, described, node)
            values = values if base is None else values + _at(base, node)
            change_logits = mask_logits(values, able) if config.filtered else values
            change = pick(2 * index + 1, change_logits)
            found.append((node_logits, node, change_logits, change, described, embedded, able))
            here = is_choice(node, free.shape[0])
            free, made = free & ~here, made + signs(change, made.shape[0])[:, None] * here[None]
        return found

    def choose(params: PyTree, key: Array | None, observation: PyTree, legal: PyTree) -> PyTree:
        view = read(observation, legal)
        keys = None if key is None else jax.random.split(key, 2 * num_changes)

        def pick(index: int, logits: Array) -> Array:
            return greedy(logits) if keys is None else sample(keys[index], logits)

        found = steps(params, view, pick)
        return like_action(legal, [jnp.stack([one[part] for one in found]) for part in (1, 3)])

    def judge(params: PyTree, observation: PyTree, legal: PyTree, action: PyTree) -> ScoredSteps:
        taken = jax.tree.leaves(action)
        found = steps(params, read(observation, legal), lambda index, _: taken[index % 2][index // 2])
        parts = [_judged(*one) for one in found]
        stacked = [jnp.stack(part) for part in zip(*parts, strict=True)]
        contexts = [jnp.moveaxis(one, 0, 1) for one in stacked[5:]]
        return ScoredSteps(*stacked[:5], *contexts)

    width = config.graph.width
    described = 3 + example.pair.shape[0] + example.service.shape[0] + 1
    widths = 2 * width, width + described

    def init(key: Array) -> PyTree:
        params = network.init(key, jax.tree.map(jnp.zeros_like, example))["params"]
        if rule is not None:
            last = f"Dense_{len(config.hidden) - 1}"
            quiet = {name: jax.tree.map(jnp.zeros_like, params[name][last]) for name in ("g", "q")}
            params = params | {name: params[name] | {last: zero} for name, zero in quiet.items()}
        return {"params": params}

    return StepwiseActor(init, choose, judge, widths)


def signs(change: Array, num_services: int) -> Array:
    """[services, *batch] 1 where a change [*batch] adds a replica, -1 where it removes one."""
    chosen = is_choice(change, 2 * num_services + 1).astype(jnp.float32)
    return chosen[1 : num_services + 1] - chosen[num_services + 1 :]


def stepwise_policy(actor: StepwiseActor, params: PyTree, *, draws: bool) -> Policy:
    """The policy that draws, or takes the likeliest choice in turn."""

    def policy(key: Array, observation: PyTree, legal: PyTree) -> PyTree:
        return actor.choose(params, key if draws else None, observation, legal)

    return policy


def stepwise_algorithm(
    init: Callable[[Array], Any], step: Callable[[Array, Any, Any], tuple[Any, Any]], network: StepwiseActor
) -> Algorithm:
    """The learner with this `init` and `step`, whose state has the actor's parameters as `actor`."""
    return Algorithm(
        init,
        step,
        lambda state: stepwise_policy(network, state.actor, draws=True),
        lambda state: stepwise_policy(network, state.actor, draws=False),
    )


def _node_logits(view: ChangeView, values: Array, free: Array, base: Array | None) -> Array:
    """[nodes, *batch] values of nodes, with what a rule scores their best possible change; of those that are free, and
    those at which the rule asks for a change."""
    if base is None:
        return mask_logits(values, free)
    could = possible_anywhere(view)
    is_open = free | (view.up & jnp.any((base > 0.0)[1:] & could[1:], axis=0))
    return mask_logits(values + jnp.max(mask_logits(base, could), axis=0), is_open)


def _judged(
    node_logits: Array,
    node: Array,
    change_logits: Array,
    change: Array,
    described: Array,
    embedded: Embeddings,
    able: Array,
) -> tuple[Array, ...]:
    mean_node = jnp.sum(jax.nn.softmax(node_logits, axis=0)[None] * embedded.node, axis=1)
    mean_change = jnp.sum(jax.nn.softmax(change_logits, axis=0)[None] * described, axis=1)
    able_here = jnp.any(is_choice(change, able.shape[0]) & able, axis=0)
    return (
        log_prob(node_logits, node),
        log_prob(change_logits, change),
        entropy(node_logits),
        entropy(change_logits),
        ~able_here,
        jnp.concatenate([embedded.cluster, mean_node]),
        jnp.concatenate([embedded.cluster, mean_change]),
    )


def _at(values: Array, node: Array) -> Array:
    """[rows, ..., *batch] of values [rows, ..., nodes, *batch] at a node [*batch]."""
    axis = values.ndim - node.ndim - 1
    index = node.reshape((1,) * (axis + 1) + node.shape)
    return jnp.squeeze(jnp.take_along_axis(values, index, axis=axis), axis)
