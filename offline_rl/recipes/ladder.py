"""The ladder: rules, tuned rules, learners and networks in turn; a network is taken only where it is better with
confidence.

The referee is made of the members of the ensemble that no policy was trained or tuned with. Every policy plays the
twin's disjoint windows in each of them under the same keys, so two policies differ by their decisions alone. The gain
over the rung that is held is the mean of the windows' differences, and how low it may be

    low = min(gain with the least favourable member, gain - t * standard error over windows)  -  guessed * value held

with Student's t for 90 % confidence and windows averaged over members, which see the same requests. So the bound falls
where the members disagree; and where a policy leads to queues that the log does not cover, more often than the held
rung does by the share `guessed`, the twin's values of those decisions count as nothing. A network is taken where `low`
is above zero and the gain at least `NETWORK_GAIN`: away from a rule it knows the days of training alone, and loses more
than a rule as run times move. With too few windows none is, and the ladder records why. One that corrects a rule begins
as that rule and is kept near it, so that little is at stake: over a rule it is taken at odds of two to one, t for 67 %
confidence, and may gain as little as it likes.

A rule is not kept for being the first: none of them is the safe one. It has a handful of parameters, so few ways to
profit from the twin's errors, and is taken where it is expected to be better: gain above zero, guessed decisions at
half of what they are worth. The tuned form of the rule that is held is taken unless it is surely worse, in any twin:
its price keeps it away from nodes that fill up, which is the safe side of what a twin does not know. Its guessed
decisions count like others where what the twin says of it is no guess (`MOST_GUESSED`).

A twin that failed its certificate is wrong by an unknown amount, for rules as for networks: there a gain counts only
from `UNTRUSTED_GAIN` on, that of a rule, and of what corrects the rule that is held, from `UNTRUSTED_GAIN_OF_RULE` on.
A correction needs 90 % confidence as well; a rule with that much confidence may gain as little as it likes, for where
hardly anything fails, little is all there is to gain.

What the logged behaviour was worth is known: the mean reward of the logged decisions on the same windows. Every rung's
gain over it, `over_log`, is kept, and of a chosen rung that is not surely above it this is said. In a twin that failed
its certificate a rung is handed over only if it is surely better than the clone of the behaviour, by `UNTRUSTED_GAIN`
where it is not surely above the log's own value as well; else the clone is: nothing is known to beat what ran.

What counts late requests as lost may let them wait for good. So the mean response time of every rung is measured on
the same windows; and with `most_response` none is taken that is surely, with every member, above that multiple of the
first rung's.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from logs_schema.progress import Stage, unseen
from offline_rl.confidence import half_width
from offline_rl.networks import Actor, greedy_policy
from offline_rl.recipes.config import MIN_EPISODES, begins_as_logged
from twin.arrays import kept_arrays
from twin.contracts import Array, PyTree, Trajectory
from twin.mapped import mapped
from twin.placement.encoding import Encoding
from twin.placement.history import MOST_NODES, fewer_of
from twin.placement.learned import AnswerModel
from twin.placement.model import PlacementTwin
from twin.placement.types import COMPLETED
from twin.placement.windows import Windows, select

NUM_REQUESTS = 32_768
"""Requests played by every policy with every member, every window several times where there are fewer; of very many
nodes not so many, see `fewer_of`."""
UNTRUSTED_GAIN, UNTRUSTED_GAIN_OF_RULE = 0.03, 0.005
"""Mean reward of a decision that a rung must gain in a twin that failed its certificate. The first is what certificates
allow levels to be off by; the second is of what corrects the rule that is held, and of rules that are not surely
better."""
NETWORK_GAIN = 0.01
"""Mean reward of a decision that a network must gain which does not correct the rule that is held."""
MOST_GUESSED = 0.05
"""Share of a rung's decisions on queues that the log does not know, above which what the twin says of it is a guess."""
_SURE, _LIKELY = 0.9, 2.0 / 3.0
"""Confidence, to one side, that a network is better than what is held, and that one which corrects a rule is."""


class Rung(NamedTuple):
    """A policy that may be taken: its name in comparisons, its seed's row (else 0), what it decides by."""

    name: str
    row: int
    network: Actor
    params: PyTree
    is_rule: bool = False
    corrects_rule: bool = False
    tunes: str = ""  # name of the rung whose tuned form it is


class RungResult(NamedTuple):
    """Results of a policy in the referee's episodes."""

    value: np.ndarray  # [members, windows] mean reward of settled decisions; NaN where none was
    out_of_support: float  # share of decisions on queues that the log does not know
    response_s: np.ndarray  # [members, windows] mean response time of completed requests; NaN where none was

    @property
    def mean(self) -> float:
        """Mean reward over members and windows; NaN where nothing was settled."""
        return _mean(self.value)


class RungGain(NamedTuple):
    """What a rung has over the one that is held, in mean reward of a decision."""

    mean: float = 0.0
    low: float = 0.0  # how low it may be; minus infinity with fewer than two windows
    likely: float = 0.0  # how low at odds of two to one
    high: float = 0.0  # how high it may be, guessed decisions aside
    guessed: float = 0.0  # worth of its decisions on queues that the log does not know, beyond the held's


class RungStep(NamedTuple):
    """One rung as the referee valued it."""

    value: float  # mean over members and windows
    gain: float  # over the rung that was held then; 0 of the first
    low: float  # how low it may be
    out_of_support: float
    taken: bool
    row: int
    is_chosen: bool
    response_s: float = float("nan")  # mean over members and windows
    too_slow: bool = False  # surely above the multiple of the first rung's response time that is allowed
    over_log: float = float("nan")  # its value in the twin, less the value of the logged decisions in the log
    over_log_low: float = float("nan")  # how low that may be
    over_clone: float = float("nan")  # its gain over the clone, both in the twin
    over_clone_low: float = float("nan")


Evaluator = Callable[[Actor, PyTree], RungResult]
"""(network, parameters) -> results of its greedy policy."""


_NOTHING = RungResult(np.zeros((1, 0)), 0.0, np.zeros((1, 0)))


class Referee(NamedTuple):
    """Evaluations under two independent keys: one chooses among updates and seeds, the other among rungs, so that no
    value is one that its choice was made by."""

    select: Evaluator
    rank: Evaluator


def refereed(episodes: Windows, encoding: Encoding) -> Windows:
    """The episodes that a referee plays: of very many nodes, or requests in flight on each, `MIN_EPISODES` at least,
    spread evenly, that make up about so many requests as it plays of them (`fewer_of`)."""
    count = max(MIN_EPISODES, fewer_of(NUM_REQUESTS, encoding.num_views) // episodes.num_steps)
    if encoding.num_views <= MOST_NODES or count >= episodes.num_windows:
        return episodes
    return select(episodes, np.linspace(0, episodes.num_windows - 1, count).astype(int))


def held_out_referee(
    key: Array,
    twin: PlacementTwin,
    windows: Windows,
    model: AnswerModel,
    known: Sequence[tuple[Actor, PyTree]] = (),
) -> Referee:
    """Plays policies in the twin with members of its ensemble: the same windows and keys for all.

    Args:
        key: PRNG key, of nothing else.
        twin: The twin.
        windows: The episodes, no request in two of them.
        model: The members, best ones that no policy was trained with.
        known: Networks to come, with parameters of the shapes that theirs will have: they share one program.

    Returns:
        The referee; one program is compiled for all known networks, and one for each other network.
    """
    width = windows.num_windows
    num_requests = fewer_of(NUM_REQUESTS, twin.encoding.num_views)
    keys = jax.random.split(key, (2, -(-num_requests // (width * windows.num_steps))))
    arrays = jax.tree.map(jnp.asarray, windows)
    # One member at a time
    parameters = jax.tree.map(lambda leaf: jnp.asarray(leaf)[:, None], model.parameters)
    shared, compiling = dict(known), Lock()  # several threads may ask; the program is compiled once

    @cache
    def program(networks: tuple[Actor, ...]) -> Callable[..., tuple[Array, Array, Array]]:
        def play(
            windows: Windows, parameters: PyTree, number: Array, each: Sequence[PyTree], key: Array
        ) -> tuple[Array, Array, Array]:
            alone = model._replace(parameters=parameters)
            policies = [
                greedy_policy(network, params) for network, params in zip(networks, each, strict=True)
            ]

            def policy(key: Array, observation: PyTree, legal: PyTree) -> PyTree:
                return jax.lax.switch(number, policies, key, observation, legal)

            episodes = twin.played(key, policy, width, windows=windows, model=alone)
            active = episodes.active.astype(jnp.float32)
            reward = jnp.sum(episodes.reward * active, axis=(0, 1)) / jnp.sum(active, axis=(0, 1))
            done = episodes.active & (episodes.outcome.status == COMPLETED)
            response_s = jnp.where(done, episodes.outcome.finish_s - episodes.decision_info.arrival_s, 0.0)
            far = episodes.response_aux.availability_s > jnp.asarray(model.support_limit_s)[episodes.action]
            return (
                reward,
                jnp.sum(response_s, axis=(0, 1)) / jnp.sum(done, axis=(0, 1)),
                jnp.sum(far & episodes.active) / jnp.maximum(jnp.sum(episodes.active), 1),
            )

        again = mapped(play, (None, None, None, None, 0), keys.shape[1])
        members = len(jax.tree.leaves(parameters)[0])
        return jax.jit(mapped(again, (None, 0, None, None, None), members))

    def evaluate(keys: Array, network: Actor, params: PyTree) -> RungResult:
        each = shared | {network: params} if network in shared else {network: params}
        number = jnp.int32(tuple(each).index(network))
        params_of_each = jax.tree.map(np.asarray, tuple(each.values()))
        with compiling:
            reward, response_s, out_of_support = program(tuple(each))(
                arrays, parameters, number, params_of_each, keys
            )
        return RungResult(
            np.asarray(reward).mean(axis=1),
            float(np.mean(out_of_support)),
            np.asarray(response_s).mean(axis=1),
        )

    return Referee(partial(evaluate, keys[0]), partial(evaluate, keys[1]))


def climb(
    rungs: Sequence[Rung],
    evaluate: Evaluator,
    *,
    is_trusted: bool = True,
    most_response: float | None = None,
    logged: np.ndarray | None = None,
    clone: str = "",
    keep: Path | None = None,
    stage: Stage = unseen,
) -> dict[str, RungStep]:
    """Takes one rung after another: a rule where it is expected to be better than the one held, a network where it
    surely is.

    Args:
        rungs: From the simplest; the first is held until another is taken.
        evaluate: Of a referee.
        is_trusted: False of a twin that failed its certificate: small gains do not count.
        most_response: Multiple of the first rung's mean response time that a rung may not surely exceed; None: any.
        logged: [windows] mean reward of the logged decisions in the referee's episodes, NaN where it is not known;
            None: nothing is known of it.
        clone: Name of the rung that clones the logged behaviour; empty: none does.
        keep: Folder of the evaluations that are done.
        stage: Told how many rungs are valued.

    Returns:
        Name -> step, in the order of the rungs; exactly one is chosen.
    """
    held: Rung | None = None
    best, first, steps, all_played = _NOTHING, _NOTHING, {}, {}
    for rung in rungs:
        played = all_played[rung.name] = kept(keep, rung.name, partial(evaluate, rung.network, rung.params))
        first = first if held else played
        gain = gain_of(played, best) if held else RungGain()
        too_slow = (
            most_response is not None
            and _low(played.response_s - most_response * first.response_s, _SURE) > 0.0
        )
        is_guess = played.out_of_support > MOST_GUESSED
        taken = not held or (_is_enough(gain, rung, held, is_trusted, is_guess) and not too_slow)
        steps[rung.name] = RungStep(
            played.mean, gain.mean, gain.low, played.out_of_support, taken, rung.row, False,
            _mean(played.response_s), too_slow,
        )  # fmt: skip
        if taken:
            held, best = rung, played
        stage(float(len(steps)), float(len(rungs)))
    chosen = held.name if held else ""
    for name, played in all_played.items():
        steps[name] = _beside_behaviour(steps[name], played, logged, all_played.get(clone))
    if not is_trusted and clone in steps and not _is_above_behaviour(steps[chosen]):
        chosen = clone
    return {name: step._replace(is_chosen=name == chosen) for name, step in steps.items()}


def logged_value(history: Trajectory, windows: Windows, episodes: Windows) -> np.ndarray | None:
    """[episodes] mean reward of the logged decisions that settled in every episode, NaN where none did, and None where
    episodes begin otherwise than the log; `history`: the log of `windows`, which hold the same requests."""
    if not begins_as_logged(windows):
        return None
    known = windows.valid() & np.asarray(history.active & history.settled)[:, 0]
    reward = dict(
        zip(windows.row[known].tolist(), np.asarray(history.reward)[:, 0][known].tolist(), strict=True)
    )
    each = [
        [reward[row] for row in episodes.row[:length, number].tolist() if row in reward]
        for number, length in enumerate(episodes.length.tolist())
    ]
    return np.array([np.mean(values) if values else np.nan for values in each])


def _beside_behaviour(
    step: RungStep, played: RungResult, logged: np.ndarray | None, clone: RungResult | None
) -> RungStep:
    """The step with its gains over the logged behaviour, in the log and cloned in the twin."""
    if logged is not None:
        over = played.value - logged
        step = step._replace(over_log=_mean(over), over_log_low=_low(over, _SURE))
    if clone is not None:
        gain = gain_of(played, clone)
        step = step._replace(over_clone=gain.mean, over_clone_low=gain.low)
    return step


def _is_above_behaviour(step: RungStep) -> bool:
    """Whether a rung is better than the logged behaviour as far as a twin that failed its certificate can say."""
    return step.over_clone_low > 0.0 and (not step.over_log_low <= 0.0 or step.over_clone >= UNTRUSTED_GAIN)


def _is_enough(gain: RungGain, rung: Rung, held: Rung, is_trusted: bool, is_guess: bool) -> bool:
    """Whether a gain over the rung that is held is enough for a rung of its kind, one of which the twin's value may be
    a guess (see the module)."""
    if rung.tunes and rung.tunes == held.name:
        return gain.high > (0.5 * gain.guessed if is_guess else 0.0)
    if rung.is_rule:
        counts = is_trusted or gain.low > 0.0 or gain.mean >= UNTRUSTED_GAIN_OF_RULE
        return counts and gain.mean > 0.5 * gain.guessed
    corrects = rung.corrects_rule and held.is_rule
    if is_trusted:
        return gain.likely > 0.0 if corrects else gain.low > 0.0 and gain.mean >= NETWORK_GAIN
    return gain.low > 0.0 and gain.mean >= (UNTRUSTED_GAIN_OF_RULE if corrects else UNTRUSTED_GAIN)


def gain_of(played: RungResult, held: RungResult) -> RungGain:
    """The gain of a policy over the one that is held (see the module); windows that one of the two settled nothing in
    are left out."""
    guessed = max(0.0, played.out_of_support - held.out_of_support) * abs(held.mean)
    difference = played.value - held.value
    mean = _mean(difference)
    low, likely = (_low(difference, level) - guessed for level in (_SURE, _LIKELY))
    return RungGain(mean if np.isfinite(mean) else 0.0, low, likely, -_low(-difference, _SURE), guessed)


def _low(difference: np.ndarray, level: float) -> float:
    """How low the mean of a difference [members, windows] may be; minus infinity with fewer than two windows."""
    known = difference[:, np.isfinite(difference).all(axis=0)]
    if known.shape[1] < 2:
        return -np.inf
    windows = known.mean(axis=0)
    return min(float(known.mean(axis=1).min()), float(windows.mean()) - half_width(windows, level))


def _mean(values: np.ndarray) -> float:
    """Over what is known; NaN where nothing is."""
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def select_row(evaluate: Evaluator, network: Actor, stacked: PyTree, keep: Path | None = None) -> int:
    """The seed that does best before a referee, of parameters with leaves [seeds, ...]; ties to the first. `keep`:
    folder of the evaluations that are done."""
    num_seeds = len(jax.tree.leaves(stacked)[0])
    if num_seeds == 1:
        return 0
    each = [jax.tree.map(lambda leaf, row=row: leaf[row], stacked) for row in range(num_seeds)]
    values = [
        kept(keep, str(row), partial(evaluate, network, params)).mean for row, params in enumerate(each)
    ]
    return int(np.argmax(values))


def kept(keep: Path | None, name: str, evaluate: Callable[[], RungResult]) -> RungResult:
    """An evaluation by its name in a folder; None keeps nothing."""
    found = kept_arrays(keep and keep / f"{name}.npz", evaluate, lambda: _NOTHING)
    return found._replace(out_of_support=float(found.out_of_support))


def rungs_of(steps: Mapping[str, RungStep]) -> list[dict[str, float | str | bool | None]]:
    """The steps as plain values, in their order; `low` is None where there were too few windows for an interval."""
    return [
        {
            "policy": name, "value": step.value, "gain": step.gain,
            "low": step.low if np.isfinite(step.low) else None,
            "out_of_support": step.out_of_support, "taken": bool(step.taken), "chosen": bool(step.is_chosen),
            "response_s": step.response_s if np.isfinite(step.response_s) else None, "too_slow": bool(step.too_slow),
            **{of: _finite(getattr(step, of)) for of in ("over_log", "over_log_low", "over_clone", "over_clone_low")},
        }
        for name, step in steps.items()
    ]  # fmt: skip


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def chosen_of(steps: Mapping[str, RungStep]) -> tuple[str, int]:
    """Name and seed's row of the rung that was chosen."""
    return next((name, int(step.row)) for name, step in steps.items() if step.is_chosen)
