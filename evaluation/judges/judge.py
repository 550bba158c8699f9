"""Judges: the systems that candidate policies are evaluated in, each compiled once for all candidates and all days.

A candidate is a kind of policy and the parameters it may need; the program switches on the kind and is mapped over the
parameters of one kind, always with the same key, so all candidates get the same random draws. Days are padded to common
shapes and passed as arguments. A comparison of many policies on many shifts thus compiles a judge's program once for
each number of candidates of a kind, two or three times, and runs it once for each shift and kind.

*replay*: the logged arrivals; logged outcomes where decisions agree with the log, borrowed ones where they do not (the
rule is in `twin.placement.replay`). *twin*: the logged arrivals of the shifted days, outcomes from a twin fitted on
those days, which are not training days (the practice of Xiong et al., section 4.2.2); logged decisions get the logged
run times and acceptances there, and only waits are simulated. Both are models of the system.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evaluation.comparison.bootstrap import resampling_units
from evaluation.comparison.decisions import Decisions, decisions_from
from evaluation.judges.descriptions import REPLAY, SHIFTED_TWIN
from evaluation.judges.players import HISTORY, Players, play
from evaluation.judges.views import Translation, answered, translation_of, with_views
from logs_schema.calendar import DAY_S
from twin.contracts import Array, PyTree, Trajectory
from twin.mapped import mapped
from twin.placement.awaited_arrivals import arrivals_of, as_in_log
from twin.placement.bookkeeping import placement
from twin.placement.encoding import Encoding
from twin.placement.learned import AnswerConfig, AnswerModel, learned_answers
from twin.placement.replay import ReplayTable, replay_table, replayed_answers, times_lent, with_logged_luck
from twin.placement.responses import Answers, Arrivals, drawn_response
from twin.placement.types import Leaf
from twin.placement.windows import Windows, pad_windows, replayed_arrivals, select


class Candidate(NamedTuple):
    """One policy to evaluate: its kind, and the actor's parameters (any value where the kind needs none)."""

    name: str
    kind: str
    params: PyTree


class Judged(NamedTuple):
    """The slim part of a trajectory that metrics read."""

    decision_info: PyTree
    outcome: PyTree
    active: Array
    settled: Array
    illegal: Array
    action: Array
    out_of_support: Array | None = None  # bool: a longer queue than in the twin's data; None outside of twins


def slim(trajectory: Trajectory, support_limit_s: Leaf | None = None) -> Judged:
    """The kept part of a trajectory; `out_of_support` by a twin's `AnswerModel.support_limit_s` [nodes]."""
    kept = Judged(*(getattr(trajectory, name) for name in Judged._fields[:-1]))
    if support_limit_s is None:
        return kept
    return kept._replace(
        out_of_support=trajectory.response_aux.availability_s
        > jnp.asarray(support_limit_s)[trajectory.action]
    )


Shape = tuple[int, int, int]
"""Steps, windows, and rows of what is in flight at a window's start."""


def common_shape(parts: Sequence[Windows]) -> Shape:
    """The shape that all parts can be padded to."""
    sizes = [(part.num_steps, part.num_windows, len(part.carried.node)) for part in parts]
    steps, windows, carried = map(max, zip(*sizes, strict=True))
    return steps, windows, carried


class Evaluation(NamedTuple):
    """The result of one candidate by one judge."""

    decisions: Decisions
    agreement: float | None  # fraction of decisions that are those of the log
    num_illegal: int
    out_of_support: float | None = None
    """Share of decisions outside the support of the judge's log: in a twin on nodes with longer queues than in its
    data, in replay choices that the log hardly ever took for the service or the queue, or whose outcome one request
    lends to many; None in the truth."""


class Judge(NamedTuple):
    """A system that evaluates candidates on some days."""

    name: str
    # (key, candidates) -> a result for each
    evaluate: Callable[[Array, Sequence[Candidate]], list[Evaluation]]


class Program(NamedTuple):
    """A compiled system and its players."""

    kinds: tuple[str, ...]  # names of its players, in the order of its branches
    # (key, kind, parameters [C, ...] of candidates of that kind, the judge's arguments ...) -> Judged, leaves [C, ...]
    run: Callable[..., Judged]
    # all players act in one run, each once: `kind` is None, C the number of players
    side_by_side: bool = False


def compiled(
    run: Callable[..., Judged], kinds: Iterable[str], num_shared: int, *, side_by_side: bool = False
) -> Program:
    """`run` for one candidate, mapped over the parameters of candidates of one kind and compiled.

    The kind is not mapped over, so a switch on it computes one branch. The last `num_shared` arguments are common.
    Without parameters (None) all candidates are equal: C is 1. Of players `side_by_side` each acts in a row of its own:
    long episodes in few streams advance so together, at little more than the cost of one.
    """

    def together(key: Array, kind: Array, params: PyTree, *shared: PyTree) -> Judged:
        size = max((len(leaf) for leaf in jax.tree.leaves(params)), default=1)
        return mapped(run, (None, None, 0, *(None,) * num_shared), size)(key, kind, params, *shared)

    return Program(tuple(dict.fromkeys(kinds)), jax.jit(together), side_by_side)


def all_at_once(
    program: Program, key: Array, candidates: Sequence[Candidate], *shared: PyTree
) -> list[Judged]:
    """A NumPy result for every candidate, by one call of a program for each policy with all its seeds: a program is
    compiled for two numbers of candidates only, one and the number of seeds. Players `side_by_side` take one call; the
    candidates are these players, in their order.
    """
    if program.side_by_side:
        params = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(each.params for each in candidates))
        together = jax.tree.map(np.asarray, program.run(key, None, params, *shared))
        return [jax.tree.map(lambda leaf, row=row: leaf[row], together) for row in range(len(candidates))]
    found: dict[int, Judged] = {}
    groups = [(candidate.name, candidate.kind) for candidate in candidates]
    for group in dict.fromkeys(groups):
        places = [place for place, each in enumerate(groups) if each == group]
        params = jax.tree.map(
            lambda *leaves: jnp.stack(leaves), *(candidates[place].params for place in places)
        )
        together = program.run(key, jnp.int32(program.kinds.index(group[1])), params, *shared)
        together = jax.tree.map(np.asarray, together)
        for row, place in enumerate(places):
            row = min(row, len(together.active) - 1)
            found[place] = jax.tree.map(lambda leaf, row=row: leaf[row], together)
    return [found[place] for place in range(len(candidates))]


Translations = Mapping[str, Translation]
"""Name of another encoding -> the windows' requests in that encoding."""


class System(NamedTuple):
    """The part of a program that depends on a window judge: its encoding, the players, and further encodings whose
    bookkeeping state is updated as well."""

    encoding: Encoding
    players: Players
    others: Mapping[str, Encoding]

    def play(
        self,
        key: Array,
        kind: Array | None,
        params: PyTree,
        windows: Windows,
        answers: Answers,
        translations: Translations,
        arrivals: Arrivals,
    ) -> Trajectory:
        """The requests of `windows`, coming by `arrivals`, decided by one player and answered by `answers`."""
        cluster, config = self.encoding.cluster, self.encoding.problem
        problem = placement(cluster, config)
        response = drawn_response(cluster, config.depth, arrivals, answers)
        if self.others:
            problem, response = with_views(problem, self.others, translations), answered(response)
        num_steps, num_windows = windows.arrival_s.shape
        return play(
            key, problem, response, self.players, kind, params,
            num_steps=num_steps, streams=(num_windows,), logged=jnp.maximum(jnp.asarray(windows.node), 0)[:, None],
        )  # fmt: skip


def replay_program(
    encoding: Encoding, players: Players, others: Mapping[str, Encoding] | None = None
) -> Program:
    """The compiled replay; shared arguments: windows, table, translations for `others`."""

    system = System(encoding, players, others or {})

    def run(
        key: Array,
        kind: Array,
        params: PyTree,
        windows: Windows,
        table: ReplayTable,
        translations: Translations,
    ) -> Judged:
        answers, arrivals = replayed_answers(windows, table), replayed_arrivals(windows)
        return slim(system.play(key, kind, params, windows, answers, translations, arrivals))

    return compiled(run, players, 3)


def twin_program(
    encoding: Encoding,
    config: AnswerConfig,
    players: Players,
    others: Mapping[str, Encoding] | None = None,
    *,
    side_by_side: bool = False,
) -> Program:
    """The compiled twin; shared arguments: windows, model, translations for `others`; `side_by_side` as of `compiled`,
    without the logged behaviour.

    Logged decisions get the logged run times and acceptances (see `with_logged_luck`), which they were reactions to.
    Where agents await their answers requests come by what ends in the twin; results are in the order of the log.
    """
    system, kinds = System(encoding, players, others or {}), tuple(players)

    def run(
        key: Array,
        kind: Array | None,
        params: PyTree,
        windows: Windows,
        model: AnswerModel,
        translations: Translations,
    ) -> Judged:
        answers = learned_answers(encoding, config, model)
        is_history: Array | bool = False
        if HISTORY in kinds and not side_by_side:
            is_history = kind == kinds.index(HISTORY)
            answers = with_logged_luck(answers, windows, is_history)
        arrivals = arrivals_of(windows, in_place=is_history)
        played = system.play(key, kind, params, windows, answers, translations, arrivals)
        return as_in_log(windows, slim(played, model.support_limit_s))

    return compiled(run, players, 3, side_by_side=side_by_side)


def replay_judge(
    program: Program,
    encoding: Encoding,
    windows: Windows,
    shape: Shape,
    others: Mapping[str, Windows] | None = None,
) -> Judge:
    """Trace replay of `windows`, padded to `shape`; `others` are the same in other encodings."""
    padded = pad_windows(windows, *shape)
    table = replay_table(padded, encoding.cluster.num_nodes, own_run=encoding.states_run)
    translations = {
        name: translation_of(pad_windows(other, *shape)) for name, other in (others or {}).items()
    }
    arrays = jax.tree.map(jnp.asarray, (padded, table, translations))

    rare, lent = rarely_tried(windows, encoding.cluster.num_nodes), times_lent(windows)

    def guessed(chosen: np.ndarray, same: np.ndarray) -> np.ndarray:
        tried = ~np.take_along_axis(rare, chosen[None], axis=0)[0]
        return ~same & (~tried | (lent(chosen) > MOST_LENT))

    def evaluate(key: Array, candidates: Sequence[Candidate]) -> list[Evaluation]:
        judged = all_at_once(program, key, candidates, *arrays)
        return [
            _result(_as_in_table(one, table), encoding, windows, copies=1, guessed=guessed) for one in judged
        ]

    return Judge(REPLAY, evaluate)


def rarely_tried(windows: Windows, num_nodes: int) -> np.ndarray:
    """[nodes, T, W] bool: the log of these windows ran the request's service, or requests of its queue, on the node
    fewer than `RARE` times, so that replay borrows the outcome from others, or from one or two of the same kind."""
    valid = windows.valid()
    first = np.unique(windows.row[valid], return_index=True)[1]
    node = windows.node[valid][first]

    def rare(label: np.ndarray) -> np.ndarray:
        tried = np.zeros((num_nodes, int(label[valid].max(initial=0)) + 1), np.int64)
        np.add.at(tried, (node[node >= 0], label[valid][first][node >= 0]), 1)
        return np.asarray(tried < RARE)[:, np.where(valid, label, 0)]

    return rare(np.asarray(windows.request.service)) | rare(np.asarray(windows.request.queue))


def _as_in_table(judged: Judged, table: ReplayTable) -> Judged:
    """A result of replay with the outcomes of lost records.

    The books hold twice what was in flight in training, and on a busier day requests displace each other's records.
    Their outcomes are those of the table all the same; where it has none, the request is unknown and not late.
    """
    outcome, chosen = judged.outcome, np.asarray(judged.action)[None, :, 0]

    def of_choice(leaf: np.ndarray) -> np.ndarray:
        return np.take_along_axis(np.asarray(leaf), chosen, axis=0)[0][:, None]

    lost = np.asarray(judged.active & ~judged.settled) & np.isnan(outcome.finish_s)
    known, fate = lost & of_choice(table.known), jax.tree.map(of_choice, table.fate)
    return judged._replace(
        settled=judged.settled | known,
        outcome=outcome._replace(
            start_s=np.where(known, fate.start_s, outcome.start_s),
            finish_s=np.where(known, fate.finish_s, np.where(lost, np.inf, outcome.finish_s)),
            status=np.where(known, fate.status, outcome.status),
        ),
    )


def twin_judge(
    program: Program,
    encoding: Encoding,
    windows: Windows,
    model: AnswerModel,
    shape: Shape,
    *,
    copies: int,
    name: str = SHIFTED_TWIN,
    others: Mapping[str, Windows] | None = None,
) -> Judge:
    """The logged arrivals of `windows` with learned outcomes, every window simulated `copies` times; `others` are the
    same windows in other encodings."""

    def tiled(part: Windows) -> Windows:
        return select(pad_windows(part, *shape), np.tile(np.arange(shape[1]), copies))

    translations = {name: translation_of(tiled(other)) for name, other in (others or {}).items()}
    arrays = jax.tree.map(jnp.asarray, (tiled(windows), model, translations))

    def evaluate(key: Array, candidates: Sequence[Candidate]) -> list[Evaluation]:
        judged = all_at_once(program, key, candidates, *arrays)
        return [_result(one, encoding, windows, copies=copies) for one in judged]

    return Judge(name, evaluate)


def window_units(windows: Windows) -> tuple[np.ndarray, np.ndarray, str]:
    """The day and the resampling unit of every entry [T, W] of some windows, and the name of the unit."""
    valid = windows.valid()
    day = np.floor((windows.arrival_s + windows.origin_s) / DAY_S).astype(np.int64) + _EPOCH_ORDINAL
    order = np.argsort(windows.row[valid], kind="stable")
    labels, kind = resampling_units(day[valid][order])
    unit = np.zeros(valid.shape, np.int64)
    in_order = np.empty(len(order), np.int64)
    in_order[order] = labels
    unit[valid] = in_order
    return day, unit, kind


def _result(
    judged: Judged,
    encoding: Encoding,
    windows: Windows,
    *,
    copies: int,
    guessed: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> Evaluation:
    """The result on the real windows, padding dropped; `guessed`, of replay: which decisions' outcomes are borrowed
    without support, by the nodes chosen and whether they are the log's, all [T, W]."""
    total = judged.active.shape[-1]
    width = total // copies
    real = np.flatnonzero(np.arange(total) % width < windows.num_windows)
    window = real % width
    steps = windows.num_steps
    judged = jax.tree.map(lambda leaf: leaf[:steps][..., real], judged)
    day, unit, _ = window_units(windows)
    last_s = windows.arrival_s[windows.length - 1, np.arange(windows.num_windows)]
    span_s = np.maximum(last_s - windows.arrival_s[0], 1.0)
    decisions = decisions_from(
        judged,
        encoding.cluster,
        unit=unit[:, None, window],
        day=day[:, None, window],
        window_s=span_s[window],
    )
    active, logged = judged.active[:, 0], windows.node[:, window]
    same = judged.action[:, 0] == logged
    known = active & (logged >= 0)
    agreement = float(np.mean(same[known])) if known.any() else None
    out_of_support = (
        None if judged.out_of_support is None else float(np.mean(judged.out_of_support[:, 0][active]))
    )
    if guessed is not None and active.any():
        out_of_support = float(np.mean(guessed(np.asarray(judged.action[:, 0]), np.asarray(same))[active]))
    return Evaluation(decisions, agreement, int(judged.illegal.sum()), out_of_support)


RARE = 5
"""Requests of a service or queue on a node below which replay of that choice counts as out of support."""
MOST_LENT = 10
"""Decisions of a policy that may borrow one request's outcome; of more, replay of them counts as out of support: a
handful of outcomes is weighed as if it were many, and an interval knows nothing of it."""
_EPOCH_ORDINAL = 719_163
"""`datetime.date(1970, 1, 1).toordinal()`."""
