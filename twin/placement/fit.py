"""Fits the answers: history is rolled through the bookkeeping once, then every offer in it is a labelled row.

The features of a row are those the rollout computed, so they mean in training exactly what they mean in the twin.
Members differ by initial weights and by the windows they see (a bootstrap of windows); the held-out windows are
common to all, and each member keeps the parameters with the best held-out likelihood.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from logs_schema.errors import ConfigError
from twin.contracts import Array, Environment, PyTree, Trajectory
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding
from twin.placement.learned import AnswerConfig, AnswerModel, answer_inputs, answer_network, num_inputs
from twin.placement.outcome_model import Observed, log_likelihood, split_outputs
from twin.placement.replay import replay_table, replayed_answers
from twin.placement.responses import drawn_response
from twin.placement.types import DROPPED, FAILED, REJECTED
from twin.placement.windows import Windows, replayed_arrivals
from twin.rollout import follow

MIN_ROWS = 200
"""Fewer labelled offers than this are refused: the held-out share would say nothing."""


def replay_environment(windows: Windows, encoding: Encoding) -> Environment:
    """The environment that replays `windows`: history where decisions agree, the donor rule where they do not."""
    table = replay_table(windows, encoding.cluster.num_nodes, own_run=encoding.states_run)
    response = drawn_response(
        encoding.cluster, encoding.problem.depth, replayed_arrivals(windows), replayed_answers(windows, table)
    )
    return environment(placement(encoding.cluster, encoding.problem), response)


def replay_log(windows: Windows, encoding: Encoding) -> Trajectory:
    """History as a trajectory: the logged decisions followed through the bookkeeping, one stream a window."""
    system = replay_environment(windows, encoding)
    actions = jnp.asarray(np.maximum(windows.node, 0))[:, None]
    run = jax.jit(lambda key: follow(key, system, actions, (windows.num_windows,)))
    return run(jax.random.key(0))


class Offers(NamedTuple):
    """Labelled offers: inputs [inputs, rows] and what was observed [rows]."""

    inputs: np.ndarray
    observed: Observed
    window: np.ndarray  # [rows] which window a row is from


def labelled_offers(history: Trajectory, windows: Windows, encoding: Encoding) -> Offers:
    """The offers of a replayed log with their answers.

    Args:
        history: From `replay_log`.
        windows: The windows it replayed.
        encoding: For the cluster.

    Returns:
        One row an offer; durations of unfinished requests are lower bounds, known up to the window's last instant.
    """
    steps = jax.tree.map(lambda leaf: leaf[:-1], history.global_observation)
    seen = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -1), steps)  # steps join the trailing axes
    node = jnp.moveaxis(history.facts.node, 0, -1)
    inputs = np.asarray(jax.jit(lambda s, n: answer_inputs(encoding.cluster, s, n))(seen, node))
    inputs = np.moveaxis(inputs[:, 0], -1, 1)  # [inputs, T, W]
    fate, arrival_s, valid = windows.fate, windows.arrival_s, windows.valid()
    legal = ~np.asarray(history.illegal[:, 0])
    last_s = np.max(np.where(valid, arrival_s, -np.inf), axis=0)[None]
    started, finished = np.isfinite(fate.start_s), np.isfinite(fate.finish_s)
    with np.errstate(invalid="ignore"):
        wait_s = np.where(started, fate.start_s - arrival_s, np.maximum(last_s - arrival_s, 0.0))
        run_s = np.where(finished, fate.finish_s - fate.start_s, np.maximum(last_s - fate.start_s, 0.0))
    observed = Observed(
        accepted=fate.status != REJECTED,
        dropped=fate.status == DROPPED,
        failed=fate.status == FAILED,
        wait_s=np.maximum(wait_s, 0.0),
        started=started,
        run_s=np.where(started, np.maximum(run_s, 0.0), 0.0),
        finished=finished & started,
    )
    rows = valid & legal & (windows.node >= 0)
    window = np.broadcast_to(np.arange(windows.num_windows), valid.shape)
    return Offers(inputs[:, rows], Observed(*(np.asarray(leaf)[rows] for leaf in observed)), window[rows])


class FitReport(NamedTuple):
    """How the fit went."""

    train_log_likelihood: np.ndarray  # [looks, members], mean per row; NaN after a member has stopped
    held_out_log_likelihood: np.ndarray  # [looks, members]
    best_step: np.ndarray  # [members]
    num_train: int
    num_held_out: int


def fit_answers(
    key: Array, offers: Offers, encoding: Encoding, config: AnswerConfig
) -> tuple[AnswerModel, FitReport]:
    """Fits the ensemble by maximum likelihood, all members in one program.

    Args:
        key: PRNG key for initial weights, bootstrap and batches.
        offers: Labelled rows.
        encoding: The encoding they were made with.
        config: Of the ensemble.

    Returns:
        The model and the curves of its fit.

    Raises:
        ConfigError: Fewer than `MIN_ROWS` rows.
    """
    num_rows = offers.inputs.shape[1]
    if num_rows < MIN_ROWS:
        raise ConfigError(
            f"{num_rows} labelled offers are too few to fit answers", allowed=f"at least {MIN_ROWS}",
            advice="train on more days",
        )  # fmt: skip
    key_split, key_fit = jax.random.split(key)
    weights, held_out = _shares(key_split, offers.window, config)
    data = (jnp.asarray(offers.inputs), jax.tree.map(jnp.asarray, offers.observed))
    parameters, curves = _fit(key_fit, data, weights, held_out, encoding, config)
    started, finished = offers.observed.started, offers.observed.finished
    model = AnswerModel(
        jax.tree.map(np.asarray, parameters),
        float(np.max(offers.observed.wait_s[started], initial=1.0)),
        float(np.max(offers.observed.run_s[finished], initial=1.0)),
    )
    train, valid, best = (np.asarray(curve) for curve in curves)
    return model, FitReport(train, valid, best, int(num_rows - held_out.sum()), int(held_out.sum()))


def _shares(key: Array, window: np.ndarray, config: AnswerConfig) -> tuple[np.ndarray, np.ndarray]:
    """Rows' sampling weights [members, rows] (a bootstrap of the training windows) and the held-out rows [rows]."""
    generator = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    names = np.unique(window)
    if len(names) >= 4:
        kept = max(1, round(config.held_out * len(names)))
        held_out = np.isin(window, generator.permutation(names)[:kept])
    else:
        held_out = generator.random(len(window)) < config.held_out
    weights = np.zeros((config.num_members, len(window)))
    for member in range(config.num_members):
        drawn = generator.choice(names, len(names))
        count = np.bincount(np.searchsorted(names, drawn), minlength=len(names))
        count = np.ones_like(count) if len(names) < 4 else count
        weights[member] = np.where(held_out, 0.0, count[np.searchsorted(names, window)])
        if not weights[member].any():
            weights[member] = ~held_out
    return weights, held_out


class _Search(NamedTuple):
    """A member on its way: where it walks, the best place so far, and what was seen."""

    walk: tuple[PyTree, PyTree]  # parameters, optimiser state
    best: PyTree
    best_loss: Array
    best_look: Array
    num_looks: Array
    train: Array  # [looks]
    held_out: Array  # [looks]


def _padded_rows(rows: np.ndarray) -> tuple[Array, Array]:
    """Row indices and their weights, padded with weight zero to a power of two: few shapes, few programs."""
    size = 1 << max(0, len(rows) - 1).bit_length()
    weight = (np.arange(size) < len(rows)).astype(np.float32)
    return jnp.asarray(np.resize(rows, size)), jnp.asarray(weight)


def _fit(
    key: Array,
    data: tuple,
    weights: np.ndarray,
    held_out: np.ndarray,
    encoding: Encoding,
    config: AnswerConfig,
) -> tuple[PyTree, tuple]:
    inputs, observed = data
    network, unit_s = answer_network(config), encoding.problem.time_unit_s
    schedule = optax.cosine_decay_schedule(config.learning_rate, config.num_steps)
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=config.weight_decay)
    )
    cumulative = jnp.asarray(np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True), jnp.float32)
    aside, aside_weight = _padded_rows(np.flatnonzero(held_out))

    def mean_loss(parameters: PyTree, rows: Array, weight: Array) -> Array:
        outputs = network.apply(parameters, inputs[:, rows])
        some = jax.tree.map(lambda leaf: leaf[rows], observed)
        return -jnp.sum(weight * log_likelihood(split_outputs(outputs), some, unit_s)) / jnp.sum(weight)

    def gradient_step(carry: tuple, key_step: Array, below: Array) -> tuple[tuple, Array]:
        parameters, state = carry
        rows = jnp.searchsorted(below, jax.random.uniform(key_step, (config.batch_size,)))
        rows = jnp.minimum(rows, inputs.shape[1] - 1)
        loss, gradient = jax.value_and_grad(mean_loss)(parameters, rows, jnp.ones(rows.shape))
        updates, state = optimiser.update(gradient, state, parameters)
        return (optax.apply_updates(parameters, updates), state), loss

    num_looks = max(1, config.num_steps // config.evaluate_every)

    def look(key_looks: Array, below: Array, carry: _Search) -> _Search:
        keys = jax.random.split(jax.random.fold_in(key_looks, carry.num_looks), config.evaluate_every)
        walk, losses = jax.lax.scan(lambda c, k: gradient_step(c, k, below), carry.walk, keys)
        loss = mean_loss(walk[0], aside, aside_weight)
        better = loss < carry.best_loss
        return _Search(
            walk=walk,
            best=jax.tree.map(lambda new, old: jnp.where(better, new, old), walk[0], carry.best),
            best_loss=jnp.where(better, loss, carry.best_loss),
            best_look=jnp.where(better, carry.num_looks + 1, carry.best_look),
            num_looks=carry.num_looks + 1,
            train=carry.train.at[carry.num_looks].set(-jnp.mean(losses)),
            held_out=carry.held_out.at[carry.num_looks].set(-loss),
        )

    def goes_on(carry: _Search) -> Array:
        return (carry.num_looks < num_looks) & (carry.num_looks - carry.best_look < config.patience)

    def member(key_member: Array, below: Array) -> tuple[PyTree, Array, Array, Array]:
        key_init, key_looks = jax.random.split(key_member)
        parameters = network.init(key_init, jnp.zeros((num_inputs(encoding.cluster), 1)))
        none = jnp.full(num_looks, jnp.nan)
        zero = jnp.int32(0)
        start = _Search(
            (parameters, optimiser.init(parameters)), parameters, jnp.float32(jnp.inf), zero, zero, none, none
        )
        last = jax.lax.while_loop(goes_on, lambda carry: look(key_looks, below, carry), start)
        return last.best, last.train, last.held_out, last.best_look * config.evaluate_every

    run = jax.jit(jax.vmap(member, out_axes=(0, 1, 1, 0)))
    parameters, train, valid, best = run(jax.random.split(key, config.num_members), cumulative)
    return parameters, (train, valid, best)
