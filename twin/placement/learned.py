"""Learned answers: an ensemble of networks that imitate how the system answered offers in the log.

Every member gets the request in hand and the node it is offered to, through the same features as a policy (in full,
without summaries), and when that node will have room by what it has answered before (`availability`). It gives the
distribution of the answer (`outcome_model`). The bookkeeping does the rest: queues and occupancy are never predicted.
Each stream is simulated with one member, which is fast and carries the uncertainty.

This is the supervised baseline of Xiong et al., section 3.4; durations beyond the longest logged one are cut off there.
"""

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.errors import ConfigError
from logs_schema.settings import refuse_wrong_types
from twin.contracts import Array, PyTree, Streams
from twin.networks import MLP, apply
from twin.placement import driving_out, paced_fates, replanning
from twin.placement.availability import PendingFates, pending_fates
from twin.placement.discontent import AgentsServed, after_answers, discontent_of, nobody_served
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES, observe, one_hot, request_features
from twin.placement.outcome_model import (
    NUM_OUTPUTS,
    NUM_UNIFORMS,
    AnswerParameters,
    DrawnAnswers,
    log_wait,
    sample_answer,
    split_outputs,
)
from twin.placement.patience import patience_s
from twin.placement.randomisation import Randomisation, draw_seeds, factors
from twin.placement.responses import Answers
from twin.placement.types import (
    COMPLETED,
    DROPPED,
    FAILED,
    REJECTED,
    Cluster,
    Fate,
    Leaf,
    Observation,
    PlacementState,
    Requests,
)

ACCEPTANCE = [feature.name for feature in NODE_FEATURES].index("acceptance")
"""Row of `offer_inputs` with the usual acceptance."""
USUAL_RUN = [feature.name for feature in NODE_FEATURES].index("usual_run")
"""Row of `offer_inputs` with how long the request should run there, as `log1p` of time units."""
NUM_PENDING = 6
"""Rows of `pending_inputs`, but for those that some logs have."""
TIDE = -6
"""Row of `answer_inputs` with the tides at the arrival."""
AVAILABILITY = -2
"""Row of `answer_inputs` with the time until the node has room, in time units, as `log1p`."""
BEYOND = 1.01
"""Runs that are cut off are drawn up to so many times their limit: no rounding brings them below it."""
_AVAILABILITY_SCALE = 0.1
"""Brings the logarithm of milliseconds to days to the order of one."""
_LEVEL_SCALE, _TIDE_SCALE, _DISCONTENT_SCALE = 4.0, 2.0, 4.0
"""Brings levels, logarithms that are tenths, to the order of one, as the other inputs are: the smaller an input, the
larger the weight it needs, and weights decay."""
LONG_RATE, LONG_STEPS, MAX_RATE = 1.5e-3, 3000, 8e-3
"""Learning rates go by the number of gradient steps: a short fit that goes as slowly as a long one stops half-way."""


@dataclass(frozen=True)
class AnswerConfig:
    """The ensemble's size and how it is fitted.

    Attributes:
        num_members: Networks in the ensemble.
        hidden: Widths of their hidden layers.
        learning_rate: Of Adam, decayed to zero by a cosine. None: `LONG_RATE` for `LONG_STEPS` or more, in inverse
            proportion to the steps for fewer, at most `MAX_RATE`.
        weight_decay: Decoupled (AdamW): times the learning rate it is the share that a weight loses in a step.
        batch_size: Rows per gradient step and member.
        num_steps: Gradient steps at most, in whole `evaluate_every`; one such at least.
        held_out: Share of the windows kept for early stopping.
        evaluate_every: Steps between two looks at the held-out likelihood.
        patience: Looks without improvement before a member's parameters are settled.
    """

    num_members: int = 5
    hidden: tuple[int, ...] = (128, 128)
    learning_rate: float | None = None
    weight_decay: float = 0.3
    batch_size: int = 512
    num_steps: int = 3000
    held_out: float = 0.15
    evaluate_every: int = 50
    patience: int = 20

    def __post_init__(self) -> None:
        refuse_wrong_types(self, "[twin]")
        counts = (self.num_members, self.batch_size, self.num_steps, self.evaluate_every, self.patience)
        if min(*counts, *self.hidden) < 1:
            raise ConfigError(
                f"numbers of an ensemble {counts}, hidden widths {self.hidden}",
                where="[twin]",
                allowed="1 or more of num_members, batch_size, num_steps, evaluate_every, patience and every width",
            )
        rate = LONG_RATE if self.learning_rate is None else self.learning_rate
        if not (0.0 < self.held_out < 1.0 and 0.0 < rate < np.inf and self.weight_decay >= 0.0):
            raise ConfigError(
                f"held_out = {self.held_out:g}, learning_rate = {rate:g}, "
                f"weight_decay = {self.weight_decay:g}",
                where="[twin]",
                allowed="held_out between 0 and 1, a positive learning rate, no negative decay",
            )

    def learning_rate_of(self, num_steps: Array) -> Array | float:
        """Of the first of so many gradient steps."""
        if self.learning_rate is not None:
            return self.learning_rate
        return jnp.clip(LONG_RATE * LONG_STEPS / num_steps, LONG_RATE, MAX_RATE)


class _AnswerMemory(NamedTuple):
    """What the answers of an episode keep."""

    seeds: Array | None  # of what is randomised
    served: AgentsServed | None  # None where agents do not answer by how they were served


class AnswerModel(NamedTuple):
    """A fitted ensemble: parameters, the largest durations in its training data, and the queues they cover."""

    parameters: PyTree  # leaves [members, ...]
    longest_wait_s: float
    longest_run_s: float
    support_limit_s: Leaf  # [nodes] of `support.support_limit_s`

    def limits_s(self, pending: PendingFates, run_limit_s: Array | None = None) -> tuple[Leaf, Leaf]:
        """Largest wait and run time to draw. What is already fated of a queue is no guess: longer queues than any that
        was logged mean longer waits. Runs that are cut off at `run_limit_s` [*batch], inf where they are not, may take
        longer than that: the longest of a log has often been cut off, and none that ended was as long."""
        longest_s: Leaf = self.longest_run_s
        if run_limit_s is not None:
            longest_s = jnp.maximum(
                longest_s, jnp.where(jnp.isfinite(run_limit_s), BEYOND * run_limit_s, 0.0)
            )
        return self.longest_wait_s + pending.availability_s, longest_s


def answer_network(config: AnswerConfig) -> MLP:
    """The network of one member."""
    return MLP(config.hidden, NUM_OUTPUTS, output_scale=0.1)


def num_offer_inputs(cluster: Cluster) -> int:
    """Number of rows of `offer_inputs`."""
    return len(NODE_FEATURES) + cluster.num_nodes + len(request_features(cluster))


def num_inputs(cluster: Cluster) -> int:
    """Number of inputs of a member's network."""
    optional = (cluster.reaction is not None) + (cluster.priorities is not None) + bool(cluster.shared_waits)
    return num_offer_inputs(cluster) + NUM_PENDING + optional


def offer_inputs(cluster: Cluster, seen: Observation, node: Array) -> Array:
    """What is observed of an offer.

    Args:
        cluster: For the number of nodes.
        seen: The observation in full; leaves [features, nodes, *batch] and [features, *batch].
        node: [*batch] int32, the node offered.

    Returns:
        [inputs, *batch]: the offered node's features, which node it is, the request's features.
    """
    chosen = one_hot(node, cluster.num_nodes).astype(jnp.float32)
    of_node = jnp.sum(jnp.where((chosen > 0.0)[None], seen.node, 0.0), axis=1)
    return jnp.concatenate([of_node, chosen, seen.request])


def answer_inputs(
    cluster: Cluster, seen: Observation, node: Array, pending: PendingFates, unit_s: float
) -> Array:
    """What the answer to an offer may depend on: `offer_inputs`, and when the node has room.

    Args:
        cluster: For the number of nodes.
        seen: The observation in full; leaves [features, nodes, *batch] and [features, *batch].
        node: [*batch] int32, the node offered.
        pending: Leaves [*batch], of `pending_fates`.
        unit_s: Unit of durations.

    Returns:
        [inputs, *batch].
    """
    of_offer = reacted(cluster, offer_inputs(cluster, seen, node), pending)
    return jnp.concatenate([of_offer, pending_inputs(pending, unit_s)])


def reacted(cluster: Cluster, of_offer: Array, pending: PendingFates) -> Array:
    """`offer_inputs` [inputs, *batch] with the acceptance that is usual of agents as discontented as these."""
    if cluster.reaction is None or pending.discontent is None:
        return of_offer
    shift = cluster.reaction.effect * (pending.discontent - cluster.reaction.mean)
    return of_offer.at[ACCEPTANCE].add(shift)


def pending_inputs(pending: PendingFates, unit_s: float) -> Array:
    """The last rows of `answer_inputs`, from `pending_fates` [*batch]: how ill the agent was served lately, where
    answers depend on it; how many wait beside, where nodes share what is waited for; when all that go before have left
    room, where queues go before others; and [NUM_PENDING, *batch] how much longer runs take everywhere and there now,
    who runs on the node, how long those runs take, and when it has room."""
    availability_s, of_agent, cleared_s = pending.availability_s, pending.discontent, pending.cleared_s
    beside = pending.waiting_beside
    return jnp.stack(
        [
            *([] if of_agent is None else [_DISCONTENT_SCALE * of_agent]),
            *([] if beside is None else [jnp.log1p(beside)]),
            *([] if cleared_s is None else [_AVAILABILITY_SCALE * log_wait(cleared_s, unit_s)]),
            _TIDE_SCALE * pending.tide,
            _LEVEL_SCALE * pending.level,
            pending.crowding,
            pending.stretch,
            jnp.log1p(availability_s / unit_s),
            _AVAILABILITY_SCALE * log_wait(availability_s, unit_s),
        ]
    )


def answer_parameters(outputs: Array, inputs: Array, encoding: Encoding) -> AnswerParameters:
    """The distribution that a member's outputs [outputs, *batch] on `answer_inputs` [inputs, *batch] stand for.

    Run times count from what is usual, longer by the tide where the log has any. Where nodes lose what runs on them, a
    run fails by itself, as the network has it, or is lost by the log's hazard.
    """
    cluster, usual = encoding.cluster, inputs[USUAL_RUN]
    if cluster.tide.variance or cluster.node_tide.variance:
        # Few logs have enough of a tide for a network to find all of it by itself
        usual = jnp.log1p(jnp.expm1(usual) * jnp.exp(inputs[TIDE] / _TIDE_SCALE))
    found = split_outputs(outputs, inputs[-1] / _AVAILABILITY_SCALE, inputs[ACCEPTANCE], usual)
    if not cluster.hazard:
        return found
    of_offer = inputs[len(NODE_FEATURES) : len(NODE_FEATURES) + cluster.num_nodes]
    hazard = jnp.tensordot(jnp.asarray(cluster.hazard, jnp.float32), of_offer, axes=1)
    lost = hazard * jnp.expm1(usual) * encoding.problem.time_unit_s
    either = jax.nn.softplus(found.fail_logit) + lost  # minus the logarithm of the chance that it completes
    return found._replace(fail_logit=either + jnp.log(-jnp.expm1(-either)))


def members_apply(network: MLP, parameters: PyTree, inputs: Array) -> Array:
    """Every member on its own share of the streams.

    Args:
        network: Of one member.
        parameters: Leaves [members, ...].
        inputs: [inputs, seats, streams]; the streams are dealt to the members in equal consecutive shares.

    Returns:
        [outputs, seats, streams].
    """
    num_members = jax.tree.leaves(parameters)[0].shape[0]
    features, seats, streams = inputs.shape
    shares = inputs.reshape(features, seats, num_members, streams // num_members)
    outputs = jax.vmap(partial(apply, network), in_axes=(0, 2), out_axes=2)(parameters, shares)
    return outputs.reshape(outputs.shape[0], seats, streams)


def learned_answers(
    encoding: Encoding, config: AnswerConfig, model: AnswerModel, randomisation: Randomisation | None = None
) -> Answers:
    """Answers drawn from the ensemble.

    Args:
        encoding: Cluster and problem configuration that the model was fitted with.
        config: Of the ensemble.
        model: Its parameters.
        randomisation: How far each stream's durations are randomised from what was learned; not at all if None.

    Returns:
        The answers, for one stream axis whose length is a multiple of the number of members.
    """
    cluster, unit_s = encoding.cluster, encoding.problem.time_unit_s
    network = answer_network(config)
    num_members = jax.tree.leaves(model.parameters)[0].shape[0]
    parameters = jax.tree.map(jnp.asarray, model.parameters)
    randomises = randomisation is not None and randomisation.is_on

    def init(key: Array, streams: Streams) -> _AnswerMemory:
        if len(streams) != 1 or streams[0] % num_members:
            raise ConfigError(
                f"{streams} streams cannot be dealt to {num_members} members",
                where="learned_answers",
                allowed=f"one stream axis, a multiple of {num_members} long",
            )
        served = nobody_served(cluster.reaction.num_slots, streams) if cluster.reaction else None
        return _AnswerMemory(draw_seeds(key, streams) if randomises else None, served)

    def answer(
        key: Array, memory: _AnswerMemory, state: PlacementState, node: Array, pending: PendingFates
    ) -> tuple[_AnswerMemory, Fate]:
        seeds, served = memory
        seen = observe(cluster, state, unit_s, in_full=True, for_answers=True)
        if served is not None:
            discontent = discontent_of(served, state.request, state.clock_s)
            pending = pending._replace(discontent=discontent)
        inputs = answer_inputs(cluster, seen, node, pending, unit_s)
        outputs = members_apply(network, parameters, inputs)
        low = float(np.finfo(np.float32).tiny)
        uniforms = jax.random.uniform(key, (NUM_UNIFORMS, *node.shape), minval=low)
        drawn = sample_answer(
            answer_parameters(outputs, inputs, encoding),
            uniforms,
            unit_s,
            model.limits_s(pending, state.request.run_limit_s),
            cut_short=bool(cluster.hazard),
        )
        if randomisation is not None and seeds is not None:
            on_wait, on_run = factors(randomisation, seeds, node, state.request.service)
            drawn = drawn._replace(wait_s=drawn.wait_s * on_wait, run_s=drawn.run_s * on_run)
        drawn = cut_off(cluster, state.request, held_up(cluster, drawn, pending, node))
        fate = as_fate(drawn, jnp.broadcast_to(state.clock_s[None], node.shape))
        if served is not None:
            served = after_answers(served, state.request, discontent, state.clock_s, fate, state.active)
        return _AnswerMemory(seeds, served), fate

    return with_moved_fates(cluster, Answers(init, answer, partial(pending_fates, cluster)))


def held_up(cluster: Cluster, drawn: DrawnAnswers, pending: PendingFates, node: Array) -> DrawnAnswers:
    """Drawn answers [*batch] of which none begins before there is a place, where nodes have few (`places`): a log that
    hardly shows full nodes does not teach a network how long to wait. Where a node does not start requests as they came
    (`disciplines`), what waits begins the instant that it has room: else whoever is behind it would be first."""
    if cluster.disciplines is not None:
        waits = cluster.disciplines.orders(node, jnp) & (jnp.asarray(pending.availability_s) > 0.0)
        return drawn._replace(wait_s=jnp.where(waits, pending.availability_s, drawn.wait_s))
    if not cluster.places:
        return drawn
    return drawn._replace(wait_s=jnp.maximum(drawn.wait_s, pending.availability_s))


def cut_off(cluster: Cluster, request: Requests, drawn: DrawnAnswers) -> DrawnAnswers:
    """Drawn answers [*batch] of requests that are given up where they would wait longer than they may (`patience`), and
    of runs that end at their limits, and fail, where they would take longer (`timeouts`)."""
    if cluster.drops_late or cluster.wait_limit_s:
        most_s = patience_s(cluster, request.service, request.deadline_s, jnp)
        given_up = drawn.wait_s >= most_s
        drawn = drawn._replace(dropped=drawn.dropped | given_up, wait_s=jnp.minimum(drawn.wait_s, most_s))
    if request.run_limit_s is None:
        return drawn
    too_long = drawn.run_s >= request.run_limit_s
    run_s = jnp.minimum(drawn.run_s, request.run_limit_s)
    return drawn._replace(failed=drawn.failed | too_long, run_s=run_s)


def with_moved_fates(cluster: Cluster, answers: Answers) -> Answers:
    """The answers of a cluster in which a placement may move the fates of others: where it drives them out, or slows
    them."""
    if cluster.pace is not None:
        moved, planned = (
            partial(move, cluster) for move in (paced_fates.moved_fates, paced_fates.planned_fates)
        )
        return answers._replace(moved_fates=moved, planned_fates=planned)
    if cluster.priorities is not None and cluster.priorities.preempts:
        return answers._replace(moved_fates=partial(driving_out.moved_fates, cluster))
    if cluster.disciplines is not None:
        return answers._replace(moved_fates=partial(replanning.moved_fates, cluster))
    return answers


def as_fate(drawn: DrawnAnswers, clock_s: Array) -> Fate:
    """A drawn answer on the clock of an offer made at `clock_s`, leaves [*batch]."""
    start_s = clock_s + drawn.wait_s
    finish_s = jnp.where(drawn.dropped, start_s, start_s + drawn.run_s)
    ended = jnp.where(drawn.dropped, DROPPED, jnp.where(drawn.failed, FAILED, COMPLETED))
    status = jnp.where(drawn.accepted, ended, REJECTED)
    return Fate(
        drawn.accepted, jnp.where(drawn.dropped, jnp.inf, start_s), finish_s, status.astype(jnp.int32)
    )
