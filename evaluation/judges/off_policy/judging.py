"""The off-policy judge: logged decisions of the shifted days as rows, and every candidate's probabilities at them.

Propensities are those of the log where it has them; the rest of the behaviour's distribution, and all of it where the
log has no support, is estimated by clones of the shifted days, each predicting windows that it was not fitted on.
"""

import datetime as dt
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from evaluation.comparison.entries import OffPolicyRow
from evaluation.comparison.shifts import TestDays
from evaluation.judges.judge import Candidate, Shape, window_units
from evaluation.judges.off_policy.estimators import doubly_robust, importance_sampling
from evaluation.judges.off_policy.fitted_q import FittedQConfig, fitted_q, fitted_reward
from evaluation.judges.off_policy.logged import Logged, OffPolicyConfig, OffPolicyEstimate, Target
from evaluation.judges.players import GREEDY, HISTORY, SAMPLED, PlayerInput, Players, choose
from logs_schema import Archive
from offline_rl.algorithms import behaviour_cloning
from offline_rl.networks import Actor, Example
from offline_rl.recipes.cloning import affordable
from offline_rl.training_loop import from_logs, updates
from twin.contracts import Array, PyTree, Trajectory
from twin.placement.columns import decided_node
from twin.placement.encode import read_rows
from twin.placement.encoding import Encoding
from twin.placement.history import choices_in_log, fewer_of
from twin.placement.log_windows import looked_at
from twin.placement.windows import Windows, pad_windows

NUM_DRAWS, DRAWS_AT_ONCE = 32, 8
"""Draws that estimate the probabilities of a rule with random tie-breaking; what no draw changes is computed once for
as many as are made at once."""
STRETCHES = (1, 5, 20)
"""Numbers of decisions that importance weights are taken over."""
CLONE_UPDATES = 300
CLONE_STREAMS = 16
"""Windows of a clone's gradient step; of more than 128 nodes fewer, by the square of their number: windows are longer
here than in training."""
MOST_VIEWS = 1 << 20
"""Decisions times nodes whose probabilities are computed at once: a rule's or a network's view of every node is some
hundred numbers. More are computed some windows at a time."""


class Probabilities(NamedTuple):
    """The compiled probabilities of candidates."""

    kinds: tuple[str, ...]  # names of the players
    run: Callable[[Trajectory, int, PyTree], np.ndarray]  # (history, kind, parameters) -> [T, A, W]


def probability_program(players: Players, network: Actor) -> Probabilities:
    """The compiled probabilities of any of `players` at the decisions of a history; `network` is that of the sampled
    one."""
    kinds = tuple(players)

    def of_part(history: Trajectory, number: Array, kind: Array, params: PyTree) -> Array:
        seen, legal, logged = (
            jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2), tree)
            for tree in (history.observation, history.legal, history.action)
        )

        rounds = jax.random.split(jax.random.key(number), (NUM_DRAWS // DRAWS_AT_ONCE, DRAWS_AT_ONCE))

        def once(index: Array, total: Array) -> Array:
            play = partial(choose, players, kind, params)
            choices = jax.vmap(lambda key: play(key, PlayerInput(seen, logged), legal))(rounds[index])
            return total + jnp.sum(
                jnp.arange(legal.shape[0]).reshape(1, -1, 1, 1, 1) == choices[:, None], axis=0
            )

        def drawn() -> Array:
            # what a network likes best is the same in every draw
            num_rounds = jnp.where(kind == kinds.index(GREEDY), 1, len(rounds))
            total = jax.lax.fori_loop(0, num_rounds, once, jnp.zeros(legal.shape))
            return total / (num_rounds * DRAWS_AT_ONCE)

        def exact() -> Array:
            return jax.nn.softmax(network.logits(params, seen, legal), axis=0)

        found = jax.lax.cond(kind == kinds.index(SAMPLED), exact, drawn)
        return jnp.moveaxis(found[:, 0], 1, 0)

    compiled = jax.jit(of_part)

    def run(history: Trajectory, kind: int, params: PyTree) -> np.ndarray:
        return by_parts(lambda part, number: compiled(part, number, jnp.int32(kind), params), history)

    return Probabilities(kinds, run)


def by_parts(run: Callable[[Trajectory, Array], Array], history: Trajectory) -> np.ndarray:
    """`run(part of the windows, number of the part)` of a whole history, [T, A, W]; parts of `MOST_VIEWS`, all of
    the same width."""
    num_steps, num_choices, _, num_windows = history.legal.shape
    width = min(num_windows, max(1, MOST_VIEWS // (num_steps * num_choices)))
    found = []
    for number, first in enumerate(range(0, num_windows, width)):
        here = np.minimum(np.arange(first, first + width), num_windows - 1)
        part = history if width == num_windows else some_windows(history, here)
        found.append(np.asarray(run(part, jnp.int32(number))))
    return np.concatenate(found, axis=-1)[..., :num_windows]


def some_windows(history: Trajectory, here: np.ndarray) -> Trajectory:
    """The windows `here` of leaves [..., W]."""
    return jax.tree.map(lambda leaf: np.take(leaf, here, axis=-1), history)


@dataclass(frozen=True)
class OffPolicyJudge:
    """Off-policy estimates of candidates on logged days.

    Attributes:
        archive, encoding: The archive of the days, and the encoding of the arrays.
        shape: To pad to, so that one program serves all shifts.
        candidates: Policies; the seeds of one policy are averaged to one policy that draws a seed at every decision.
        example, network: Input shapes and network of the clones.
        program: From `probability_program`.
        config: Floors below which estimates are declined.
        fit: Of the fitted estimates.
    """

    archive: Archive
    encoding: Encoding
    shape: Shape
    candidates: Sequence[Candidate]
    example: Example
    network: Actor
    program: Probabilities
    config: OffPolicyConfig
    fit: FittedQConfig

    def estimates(
        self, key: Array, shift: TestDays, windows: Windows, report: Callable[[float], None]
    ) -> list[OffPolicyRow]:
        """Every candidate's estimates on the logged days of a shift.

        Args:
            key: PRNG key of the clones.
            shift: The logged days.
            windows: The same, encoded.
            report: Called with the share of the policies that is estimated.

        Returns:
            The estimates, by candidate and method, without the logged policy, whose value is known.
        """
        history = choices_in_log(pad_windows(windows, *self.shape), self.encoding)
        logged, mask = logged_decisions(
            key, self.archive, self.encoding, shift.days, windows, history, self.example, self.network
        )
        expected = fitted_reward(logged, self.fit)
        found = []
        names = dict.fromkeys(one.name for one in self.candidates if one.kind != HISTORY)
        kinds, run = self.program
        for done, name in enumerate(names):
            report(done / len(names))
            same = [one for one in self.candidates if one.name == name]
            each = [run(history, kinds.index(one.kind), one.params) for one in same]
            target = Target(name, _rows(np.mean(each, axis=0), mask))
            for stretch in STRETCHES:
                found.append(importance_sampling(logged, target, self.config, num_decisions=stretch))
            found.append(doubly_robust(logged, target, expected, self.config))
            found.append(fitted_q(logged, target, expected, self.fit, self.config))
        return _as_rows(shift.shift_days, found, estimated=logged.estimated)


def logged_decisions(
    key: Array,
    archive: Archive,
    encoding: Encoding,
    days: Sequence[dt.date],
    windows: Windows,
    history: Trajectory,
    example: Example,
    network: Actor,
) -> tuple[Logged, np.ndarray]:
    """The settled decisions of a replayed history as rows, and the mask [T, W] of where they stand in it."""
    active, settled, illegal = (
        np.asarray(leaf)[:, 0] for leaf in (history.active, history.settled, history.illegal)
    )
    mask = active & settled & ~illegal
    mask[:, windows.num_windows :] = False
    action = np.asarray(history.action)[:, 0]
    behaviour = _behaviour(key, history, windows.num_windows, example, network)
    legal = np.asarray(history.legal)[:, :, 0]
    estimated = _put_logged(behaviour, legal, action, archive, encoding, days, windows)
    unit = np.zeros(mask.shape, np.int64)
    unit[: windows.num_steps, : windows.num_windows] = window_units(windows)[1]
    logged = Logged(
        features=features_of(history, mask),
        legal=_rows(legal, mask),
        action=action.T[mask.T],
        propensity=_rows(behaviour, mask),
        reward=np.asarray(history.reward)[:, 0].T[mask.T].astype(float),
        elapsed_s=np.asarray(history.elapsed_s).T[mask.T].astype(float),
        following=_following(mask),
        unit=unit.T[mask.T],
        estimated=estimated,
    )
    return logged, mask


def _rows(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """[T, columns, W] under a mask [T, W] as [rows, columns], window by window."""
    return np.asarray(np.moveaxis(values, 1, -1).swapaxes(0, 1)[mask.T])


def features_of(history: Trajectory, mask: np.ndarray) -> np.ndarray:
    """[rows, F] as `flatten_features` of what was observed, in the order of `_rows`."""
    leaves = [leaf[..., 0, :] for leaf in jax.tree.leaves(history.observation)]  # [T, ..., W]
    found = np.empty((mask.sum(), sum(leaf[0, ..., 0].size for leaf in leaves)), np.float32)
    first = 0
    for window, here in enumerate(mask.T):
        rows = found[first : first + here.sum()]
        np.concatenate([leaf[..., window].reshape(len(leaf), -1)[here] for leaf in leaves], axis=1, out=rows)
        first += len(rows)
    return found


def _following(mask: np.ndarray) -> np.ndarray:
    """[rows] the row of the next decision, if that is the window's very next step; -1 otherwise."""
    number = np.full(mask.T.shape, -1)
    number[mask.T] = np.arange(mask.sum())
    after = np.concatenate([number[:, 1:], np.full((len(number), 1), -1)], axis=1)
    return after[mask.T]


def _behaviour(
    key: Array, history: Trajectory, num_windows: int, example: Example, network: Actor
) -> np.ndarray:
    """[T, A, W] behaviour probabilities by two clones, each fitted on one half of the windows for the other half."""
    algorithm = behaviour_cloning(example, network=network)
    found = np.zeros(np.delete(history.legal.shape, 2))
    halves = (
        [np.arange(num_windows) % 2 == half for half in (0, 1)] if num_windows > 1 else [np.ones(1, bool)] * 2
    )
    num_choices = history.legal.shape[1]
    most = max(1, fewer_of(affordable(CLONE_STREAMS, example), num_choices))
    size = min(most, *(int(half.sum()) for half in halves))
    run, begin, logits = updates(algorithm, CLONE_UPDATES), jax.jit(algorithm.init), jax.jit(network.logits)

    def estimated(params: PyTree, part: Trajectory, _: Array) -> Array:
        seen, legal = (
            jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2), tree)
            for tree in (part.observation, part.legal)
        )
        return jnp.moveaxis(jax.nn.softmax(logits(params, seen, legal), axis=0)[:, 0], 1, 0)

    for number, half in enumerate(halves):
        learned = some_windows(history, np.flatnonzero(half))
        key_init, key_run = jax.random.split(jax.random.fold_in(key, number))
        state, _ = run(key_run, begin(key_init), from_logs(learned, size), 0)
        estimate = by_parts(partial(estimated, state.actor), history)
        others = np.flatnonzero(~half) if num_windows > 1 else np.arange(1)
        found[..., others] = estimate[..., others]
    return found


def _put_logged(
    behaviour: np.ndarray,
    legal: np.ndarray,
    action: np.ndarray,
    archive: Archive,
    encoding: Encoding,
    days: Sequence[dt.date],
    windows: Windows,
) -> bool:
    """Replaces the estimated probabilities of the chosen actions by the logged propensities and rescales the others of
    the decision; False if the log has all propensities. Of days that are not looked at whole, none is taken."""
    if archive.num_rows_on("requests", days) > looked_at(encoding):
        return True
    by_id = logged_propensities(archive, encoding, days)
    if not by_id:
        return True
    rows, _ = read_rows(archive, encoding, sorted(days), known_until_s=np.inf)
    num_missing = 0
    for step, window in zip(*np.nonzero(windows.valid()), strict=True):
        value = by_id.get(str(rows.request_id[windows.row[step, window]]))
        if value is None:
            num_missing += 1
        else:
            put_chosen(behaviour[step, :, window], legal[step, :, window], action[step, window], value)
    return num_missing > 0


def logged_propensities(archive: Archive, encoding: Encoding, days: Sequence[dt.date]) -> dict[str, float]:
    """Id of a request -> probability with which the log's policy took its decision, where the log has it.

    Where decisions name classes, the probability of one of a class's machines is not that of the class: none is taken.
    """
    classes = encoding.cluster.node_names
    num_machines = Counter(row for name, row in encoding.node_of_name.items() if name not in classes)
    named = [name for name, row in encoding.node_of_name.items() if name in classes or num_machines[row] == 1]
    columns = ("request_id", "propensity", "offered_node", "ran_node")
    requests = archive.read("requests", days=list(days), columns=columns)
    is_choice = pc.is_in(decided_node(requests), value_set=pa.array(named, pa.string()))
    known = requests.filter(pc.and_(pc.is_valid(requests["propensity"]), is_choice))
    return dict(zip(known["request_id"].to_pylist(), known["propensity"].to_pylist(), strict=True))


def put_chosen(probability: np.ndarray, legal: np.ndarray, chosen: int, propensity: float) -> None:
    """Writes the logged propensity into one decision's estimated distribution, which still sums to one.

    A clone fitted on few decisions is overconfident: its other probabilities are almost zero. Unscaled, they would
    imply that the log never took actions that it chose with a known probability of a third.

    Args:
        probability: [A] estimated, written to.
        legal: [A] bool.
        chosen: The logged action.
        propensity: Its logged probability, 0 to 1.
    """
    others = legal.copy()
    others[chosen] = False
    rest = probability[others].sum()
    share = probability[others] / rest if rest > 0 else 1.0 / max(others.sum(), 1)
    probability[others] = (1.0 - propensity) * share
    probability[chosen] = propensity


def _as_rows(
    shift_days: int, estimates: Sequence[OffPolicyEstimate], *, estimated: bool
) -> list[OffPolicyRow]:
    """The estimates as rows of a comparison."""
    return [
        OffPolicyRow(
            shift_days,
            one.policy,
            one.method,
            one.value,
            one.effective_size,
            one.overlap,
            one.num_rows,
            estimated,
        )
        for one in estimates
    ]
