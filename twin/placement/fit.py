"""Fits the ensemble of answers to labelled offers by maximum likelihood.

Members differ by initial weights and by the windows they see (a bootstrap of windows); the held-out windows are
common to all, and each member keeps the parameters with the best held-out likelihood. In the end they settle together
how wide their durations are (`spread`). Gradient steps go from look to look; a fit that is kept on the way goes on from
its last looks, to the same bits.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from logs_schema.errors import ConfigError
from twin.contracts import Array, PyTree
from twin.descent import descend
from twin.fitting_loop import Checkpoint
from twin.networks import apply, shifted
from twin.placement.encoding import Encoding
from twin.placement.history import Offers, as_drawn
from twin.placement.learned import AnswerConfig, AnswerModel, answer_network, answer_parameters, num_inputs
from twin.placement.outcome_model import (
    FROM_USUAL,
    NUM_OUTPUTS,
    RUN_LOCATIONS,
    Mixture,
    Observed,
    log_likelihood,
)
from twin.placement.plain_runs import drawn_to_plain, plain_outputs
from twin.placement.run_level import level_shift
from twin.placement.spread import calibrate_spread
from twin.placement.support import support_limit_s
from twin.placement.types import Leaf
from twin.records import at_rows

MIN_ROWS = 200
"""Fewer labelled offers than this are refused: the held-out share would be too small to judge by."""
MEMORY = 0.99
"""Of the moving mean over gradient steps that a member's parameters are taken from."""
MIN_WINDOWS = 12
"""With fewer windows than this, rows are held out instead of whole windows."""
LEAST_ROWS, LEAST_ASIDE = 8_192, 2_048
"""Rows that a table is padded to at least, in all and held out: a single day takes the program of a few."""
LEAST_LOOKS = 64
"""Likewise looks."""
LOOKS_PER_SAVE = 12
"""So much is lost at most of a fit that is kept on the way."""


class FitReport(NamedTuple):
    """How the fit went."""

    train_log_likelihood: Leaf  # [looks, members], mean per row; NaN after a member has stopped
    held_out_log_likelihood: Leaf  # [looks, members]
    best_step: Leaf  # [members]
    spread: Leaf  # [2] factors on the scales of waits and run times
    run_share: Leaf  # [] of the members' own run times, the rest being the plain ones
    run_level: Leaf  # [] factor on run times
    num_train: Leaf
    num_held_out: Leaf


def fit_answers(
    key: Array,
    offers: Offers,
    encoding: Encoding,
    config: AnswerConfig,
    program: "FitProgram | None" = None,
    checkpoint: Path | None = None,
) -> tuple[AnswerModel, FitReport]:
    """Fits the ensemble by maximum likelihood, all members in one program.

    Args:
        key: PRNG key for initial weights, bootstrap and batches.
        offers: Labelled rows.
        encoding: The encoding they were made with.
        config: Of the ensemble.
        program: From `fit_program`, where it is used more than once.
        checkpoint: File (.npz) kept on the way; a second call with the same arguments goes on from it.

    Returns:
        The model and the curves of its fit.

    Raises:
        ConfigError: Fewer than `MIN_ROWS` rows.
        ProductError: The checkpoint cannot be read, or is of another key or configuration.
    """
    offers = as_drawn(offers, encoding.problem.time_unit_s)
    num_rows = offers.inputs.shape[1]
    if num_rows < MIN_ROWS:
        raise ConfigError(
            f"{num_rows} labelled offers are too few to fit answers",
            allowed=f"at least {MIN_ROWS}",
            advice="train on more days",
        )
    key_split, key_fit = jax.random.split(key)
    weights, held_out = _shares(key_split, offers.window, config)
    rows = _padded(offers, weights, held_out, config.num_steps)
    run = fit_program(encoding, config) if program is None else program
    keys, num_looks = jax.random.split(key_fit, config.num_members), _num_looks(config)
    kept = Checkpoint(checkpoint, key)
    fit = kept.resumed(_Fit(run.begin(keys, rows), np.int32(0)))
    while fit.num_looks < num_looks:
        limit = min(fit.num_looks + np.int32(LOOKS_PER_SAVE), np.int32(num_looks))
        fit = _Fit(run.go_on(keys, rows, fit.members, limit), limit)
        kept.save(fit)
    found = jax.tree.map(np.asarray, run.settle(keys, rows, fit.members))
    started, finished = offers.observed.started, offers.observed.finished
    model = AnswerModel(
        found.parameters,
        # NumPy's numbers, as after loading: Python's would be of another (weak) type and compile everything once more
        np.float64(np.max(offers.observed.wait_s[started], initial=1.0)),
        np.float64(np.max(offers.observed.run_s[finished], initial=1.0)),
        support_limit_s(encoding, offers),
    )
    looks = slice(num_looks)
    return model, FitReport(
        found.train[looks], found.held_out[looks], found.best_step, found.spread, found.run_share, found.run_level,
        int(num_rows - held_out.sum()), int(held_out.sum()),
    )  # fmt: skip


def _shares(key: Array, window: np.ndarray, config: AnswerConfig) -> tuple[np.ndarray, np.ndarray]:
    """Rows' sampling weights [members, rows] (a bootstrap of the training windows) and the held-out rows [rows].

    Few windows (a few pooled test days) are not held out whole, nor drawn: each is a large part of what there is, so
    rows are held out at random and members differ by their initial weights and batches alone.
    """
    generator, names = _generator(key), np.unique(window)
    aside = _set_aside(generator, names, config)
    held_out = np.isin(window, aside) if len(aside) else generator.random(len(window)) < config.held_out
    weights = np.zeros((config.num_members, len(window)))
    for member in range(config.num_members):
        drawn = generator.choice(names, len(names))
        count = np.bincount(np.searchsorted(names, drawn), minlength=len(names))
        count = np.ones_like(count) if len(names) < MIN_WINDOWS else count
        weights[member] = np.where(held_out, 0.0, count[np.searchsorted(names, window)])
        if not weights[member].any():
            weights[member] = ~held_out
    return weights, held_out


def held_out_windows(key: Array, names: np.ndarray, config: AnswerConfig) -> np.ndarray:
    """Which of the windows `names` (sorted) `fit_answers` with this key holds out; none where it held out rows."""
    key_split, _ = jax.random.split(key)
    return _set_aside(_generator(key_split), names, config)


def _generator(key: Array) -> np.random.Generator:
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())


def _set_aside(generator: np.random.Generator, names: np.ndarray, config: AnswerConfig) -> np.ndarray:
    if len(names) < MIN_WINDOWS:
        return names[:0]
    return generator.permutation(names)[: max(1, round(config.held_out * len(names)))]


class _Search(NamedTuple):
    """A member on its way: where it walks, the best place so far, and what was seen."""

    walk: tuple[PyTree, PyTree, PyTree]  # parameters, their moving mean, optimiser state
    best: PyTree
    best_loss: Array
    best_look: Array
    num_looks: Array
    train: Array  # [looks]
    held_out: Array  # [looks]


def _begun(parameters: PyTree, optimiser_state: PyTree, num_looks: int) -> _Search:
    none, zero = jnp.full(num_looks, jnp.nan), jnp.int32(0)
    walk = parameters, parameters, optimiser_state
    return _Search(walk, parameters, jnp.float32(jnp.inf), zero, zero, none, none)


def _looked(carry: _Search, walk: tuple[PyTree, PyTree, PyTree], loss: Array, losses: Array) -> _Search:
    """A member after one more look: where it walks now, its held-out loss there, its losses on the way."""
    better = loss < carry.best_loss
    return _Search(
        walk=walk,
        best=jax.tree.map(lambda new, old: jnp.where(better, new, old), walk[1], carry.best),
        best_loss=jnp.where(better, loss, carry.best_loss),
        best_look=jnp.where(better, carry.num_looks + 1, carry.best_look),
        num_looks=carry.num_looks + 1,
        train=carry.train.at[carry.num_looks].set(-jnp.mean(losses)),
        held_out=carry.held_out.at[carry.num_looks].set(-loss),
    )


class _Fit(NamedTuple):
    """All members after so many looks."""

    members: _Search  # leaves [members, ...]
    num_looks: Leaf


class _Rows(NamedTuple):
    """Rows in arrays of a power of two: few shapes, few programs. Added rows have no weight."""

    num_steps: Leaf  # [] gradient steps at most

    inputs: Leaf  # [inputs, rows]
    observed: Observed  # leaves [rows]
    cumulative: Leaf  # [members, rows] distribution function of the members' sampling of rows
    aside: Leaf  # [held-out] rows
    aside_weight: Leaf  # [held-out]
    weight: Leaf  # [rows] 1, 0 of added rows


def _padded(offers: Offers, weights: np.ndarray, held_out: np.ndarray, num_steps: int) -> _Rows:
    num_rows = offers.inputs.shape[1]
    source = np.resize(np.arange(num_rows), _padded_size(num_rows, LEAST_ROWS))
    cumulative = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    kept = np.flatnonzero(held_out)
    aside = _padded_size(len(kept), LEAST_ASIDE)
    return _Rows(
        np.int32(num_steps),
        offers.inputs[:, source],
        at_rows(offers.observed, source),
        np.pad(cumulative, ((0, 0), (0, len(source) - num_rows)), constant_values=2.0).astype(np.float32),
        np.resize(kept, aside),
        (np.arange(aside) < len(kept)).astype(np.float32),
        (np.arange(len(source)) < num_rows).astype(np.float32),
    )


def _padded_size(count: int, least: int) -> int:
    return max(least, 1 << max(0, count - 1).bit_length())


def _num_looks(config: AnswerConfig) -> int:
    return max(1, config.num_steps // config.evaluate_every)


def _optimiser(config: AnswerConfig, num_steps: Array) -> optax.GradientTransformation:
    def schedule(count: Array) -> Array:  # optax's cosine takes no traced number of steps
        angle = jnp.pi * jnp.minimum(count, num_steps) / num_steps
        return config.learning_rate_of(num_steps) * 0.5 * (1.0 + jnp.cos(angle))

    return optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=config.weight_decay)
    )


def _batch(key: Array, below: Array, config: AnswerConfig) -> Array:
    """[batch] rows drawn by their distribution function [rows]."""
    rows = jnp.searchsorted(below, jax.random.uniform(key, (config.batch_size,)))
    return jnp.minimum(rows, below.shape[0] - 1)


def _goes_on(carry: _Search, num_steps: Array, config: AnswerConfig) -> Array:
    num_looks = jnp.maximum(1, num_steps // config.evaluate_every)
    return (carry.num_looks < num_looks) & (carry.num_looks - carry.best_look < config.patience)


class _Fitted(NamedTuple):
    """What a program returns; curves [looks, members], the rest as in `FitReport`."""

    parameters: PyTree  # leaves [members, ...]
    spread: Array
    run_share: Array
    run_level: Array
    train: Array
    held_out: Array
    best_step: Array


class FitProgram(NamedTuple):
    """Compiled once for each shape; the numbers of gradient steps and of looks are arguments, so that fits of few
    steps share the program of many. Keys [members], rows and members as in `_Fit`."""

    begin: Callable[[Array, _Rows], _Search]
    go_on: Callable[[Array, _Rows, _Search, Leaf], _Search]  # until so many looks
    settle: Callable[[Array, _Rows, _Search], _Fitted]


def fit_program(encoding: Encoding, config: AnswerConfig) -> FitProgram:
    """The programs of a fit."""
    network, unit_s = answer_network(config), encoding.problem.time_unit_s
    padded = _padded_size(_num_looks(config), LEAST_LOOKS)

    def likelihood(parameters: PyTree, data: _Rows, rows: Array) -> Array:
        inputs = data.inputs[:, rows]
        return of_outputs(apply(network, parameters, inputs), data, rows)

    def of_outputs(outputs: Array, data: _Rows, rows: Array) -> Array:
        distribution = answer_parameters(outputs, data.inputs[:, rows], encoding)
        observed = jax.tree.map(lambda leaf: leaf[rows], data.observed)
        return log_likelihood(distribution, observed, unit_s, cut_short=bool(encoding.cluster.hazard))

    def mean_loss(parameters: PyTree, data: _Rows, rows: Array, weight: Array) -> Array:
        return -jnp.sum(weight * likelihood(parameters, data, rows)) / jnp.sum(weight)

    def gradient_step(carry: tuple, key_step: Array, data: _Rows, below: Array) -> tuple[tuple, Array]:
        parameters, mean, state = carry
        rows = _batch(key_step, below, config)
        loss, gradient = jax.value_and_grad(mean_loss)(parameters, data, rows, jnp.ones(rows.shape))
        parameters, state = descend(_optimiser(config, data.num_steps), gradient, state, parameters)
        return (parameters, optax.incremental_update(parameters, mean, 1.0 - MEMORY), state), loss

    def look(key_looks: Array, data: _Rows, below: Array, carry: _Search) -> _Search:
        keys = jax.random.split(jax.random.fold_in(key_looks, carry.num_looks), config.evaluate_every)
        walk, losses = jax.lax.scan(lambda c, k: gradient_step(c, k, data, below), carry.walk, keys)
        loss = mean_loss(walk[1], data, data.aside, data.aside_weight)
        return _looked(carry, walk, loss, losses)

    def begin(key_member: Array, data: _Rows) -> _Search:
        key_init, _ = jax.random.split(key_member)
        parameters = network.init(key_init, jnp.zeros((num_inputs(encoding.cluster), 1)))
        return _begun(parameters, _optimiser(config, data.num_steps).init(parameters), padded)

    def go_on(key_member: Array, data: _Rows, below: Array, start: _Search, limit: Array) -> _Search:
        _, key_looks = jax.random.split(key_member)
        last: _Search = jax.lax.while_loop(
            lambda carry: _goes_on(carry, data.num_steps, config) & (carry.num_looks < limit),
            lambda carry: look(key_looks, data, below, carry),
            start,
        )
        return last

    def plain_of(key_member: Array, data: _Rows, below: Array) -> Array:
        def same(outputs: Array, rows: Array) -> Array:
            return of_outputs(jnp.broadcast_to(outputs[:, None], (NUM_OUTPUTS, rows.shape[0])), data, rows)

        key = jax.random.fold_in(key_member, 1)
        return plain_outputs(key, same, lambda one: _batch(one, below, config))

    def runs(parameters: PyTree, data: _Rows, rows: Array) -> Mixture:
        inputs = data.inputs[:, rows]
        return answer_parameters(apply(network, parameters, inputs), inputs, encoding).run

    every = jax.vmap(go_on, in_axes=(0, None, 0, 0, None))

    def settle(keys: Array, data: _Rows, members: _Search) -> _Fitted:
        plain = None
        # Where nodes have levels that come and go, how far runs follow them is left to the networks
        if not encoding.cluster.dynamics.node_variance:
            plain = jax.vmap(lambda key, below: plain_of(key, data, below))(keys, data.cumulative)
        settled = _settle(
            members.best, plain, data, lambda one: likelihood(one, data, data.aside),
            lambda one, rows: runs(one, data, rows), f"Dense_{len(config.hidden)}", encoding,
        )  # fmt: skip
        best_step = members.best_look * config.evaluate_every
        return _Fitted(*settled, members.train.T, members.held_out.T, best_step)

    return FitProgram(
        jax.jit(jax.vmap(begin, in_axes=(0, None))),
        jax.jit(lambda keys, data, members, limit: every(keys, data, data.cumulative, members, limit)),
        jax.jit(settle),
    )


def _settle(
    parameters: PyTree,
    plain: Array | None,
    data: _Rows,
    held_out: Callable[[PyTree], Array],
    runs: Callable[[PyTree, Array], Mixture],
    layer: str,
    encoding: Encoding,
) -> tuple[PyTree, Array, Array, Array]:
    """What all members settle together once they are fitted: parameters, and spread, share and level of `FitReport`.

    `held_out`: parameters of one member -> log likelihoods of the rows aside; `runs`: the same, rows -> mixtures.
    """
    run_share: Array = jnp.float32(1.0)
    if plain is not None:
        parameters, run_share = drawn_to_plain(held_out, parameters, plain, data.aside_weight, layer)
    parameters, spread = calibrate_spread(held_out, parameters, data.aside_weight, layer)
    shift = _shift_of(runs, parameters, data, encoding)
    of_usual = jnp.zeros(NUM_OUTPUTS).at[RUN_LOCATIONS].set(shift * jnp.array(FROM_USUAL))
    return shifted(parameters, layer, of_usual), spread, run_share, jnp.exp(shift)


def _shift_of(
    runs: Callable[[PyTree, Array], Mixture], parameters: PyTree, data: _Rows, encoding: Encoding
) -> Array:
    """[] `level_shift` of all members, `LEAST_ROWS` rows at a time; 0 where the log's ends are amended."""
    if encoding.reported_ends is not None:
        return jnp.float32(0.0)
    rows, seen = jnp.arange(data.weight.shape[0]).reshape(-1, LEAST_ROWS), data.observed
    each = jax.lax.map(lambda one: jax.lax.map(partial(runs, one), rows), parameters)
    ordered = [jnp.moveaxis(leaf, 2, 0) for leaf in each]  # [components, members, chunks, rows of a chunk]
    mixture = Mixture(*(leaf.reshape(*leaf.shape[:2], -1) for leaf in ordered))
    is_whole = seen.finished & ~(seen.failed & bool(encoding.cluster.hazard))
    ran = data.weight * (seen.accepted & ~seen.dropped & seen.started)
    longest_s = jnp.max(jnp.where(seen.finished, seen.run_s, 1.0))
    return level_shift(mixture, seen.run_s, is_whole, ran, longest_s, encoding.problem.time_unit_s)
