"""Trains the schedulers: a clone of the log, policies in the twin that start from it, learners that need no twin; and
gives the rules from the log their numbers.

Everything a policy learns from is in the twin's folder, so training needs no archive. The clone stops where its
held-out windows are likeliest; on a small log it overfits otherwise. In the twin some members of the ensemble are
held out: of each seed's policies the one is kept that did best with them. Every seed's policy is kept.

Guards of the policies trained in the twin: every stream is simulated with one member of the ensemble; a decision on
whose worth the members disagree is worth less; durations are randomised from stream to stream; the policy stays near
the clone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from logs_schema.background import Background, NotesAlone
from logs_schema.progress import Progress, SilentProgress
from offline_rl.algorithms import PPOConfig, ppo
from offline_rl.contract import RULES
from offline_rl.export import network_facts
from offline_rl.networks import Actor, Example, example_in
from offline_rl.recipes.cloning import fit_clone
from offline_rl.recipes.config import NETWORKS, TrainingConfig, episodes_of, even_streams
from offline_rl.recipes.correcting import correctors_of, kind_of, shaped_as
from offline_rl.recipes.ladder import (
    Evaluator,
    Referee,
    Rung,
    RungStep,
    chosen_of,
    climb,
    held_out_referee,
    logged_value,
    refereed,
    select_row,
)
from offline_rl.recipes.ladder_words import beside_the_log, in_words
from offline_rl.recipes.log_learners import LearnerSearch, learn_from_log
from offline_rl.recipes.schedulers import TWIN, Schedulers, best_seed, policy_params, stacked
from offline_rl.recipes.twin_experience import members_of, rollouts_in
from offline_rl.rules import rule_actor
from offline_rl.rules.in_twin import DESCRIPTIONS, TUNED, rules_in_words, rules_of, tunable, tune_rules
from offline_rl.rules.residual import on_rule
from offline_rl.selecting import Selected, train_selecting
from twin.arrays import kept_arrays
from twin.contracts import Array, PyTree, Trajectory
from twin.placement.encoding import Encoding
from twin.placement.history import replay_log
from twin.placement.learned import AnswerModel
from twin.placement.model import PlacementTwin
from twin.placement.windows import Windows

_RULES = 3
"""Folded into a training's key for the rules; 0 to 2 are its other parts."""
_LADDER = 4
"""Likewise for the ladder's referee."""
_RESIDUAL = 5
"""Likewise for the policy that corrects a rule."""
RESIDUAL, SEED, CLONE, CLONED, LADDER = "residual", "seed", "clone.npz", "bc_greedy", "ladder"
RULES_TUNED = "tuned.npz"
RESIDUAL_KL = 0.003
"""Weight of the divergence from the rule that a residual begins at; its entropy has none."""


class Contenders(NamedTuple):
    """All that is trained, and the referee, before the ladder."""

    referee: Referee
    network: Actor
    correctors: Mapping[str, Actor]
    found: Schedulers  # without a ladder
    most_response: float | None  # see `TrainingConfig`
    # [windows] what the logged decisions were worth in the referee's episodes; None where these begin otherwise
    logged: np.ndarray | None

    def ranked(self, progress: Progress, *, is_trusted: bool, keep: Path | None = None) -> Schedulers:
        """The schedulers with the ladder's choice.

        `is_trusted` is False of a twin that failed its certificate: then small gains do not count, see `ladder`. `keep`
        as of `train_contenders`.
        """
        steps = _ladder(self, progress, is_trusted, keep)
        return self.found._replace(ladder=steps)


class TrainingStart(NamedTuple):
    """What everything that is trained begins at: the log, the shapes, and the clone."""

    history: Trajectory
    example: Example
    network: Actor
    clone: PyTree
    clone_curve: np.ndarray  # [evaluations, 2]

    def in_twin(
        self,
        key: Array,
        twin: PlacementTwin,
        evaluate: Evaluator,
        config: TrainingConfig,
        progress: Progress,
        keep: Path | None,
    ) -> list[Selected]:
        """PPO in the twin, a run for each seed; none where no updates are configured."""
        if not config.num_updates:
            return []
        key_seeds = jax.random.split(key, 3)[1]
        return train_in_twin(
            key_seeds, twin, self.example, self.network, self.clone, evaluate, config, progress, keep
        )

    def from_log(
        self, key: Array, twin: PlacementTwin, config: TrainingConfig, progress: Progress, keep: Path | None
    ) -> tuple[dict[str, PyTree], dict[str, LearnerSearch]]:
        """Learners from the log alone, all seeds of each."""
        key_logs = jax.random.split(key, 3)[2]
        return learn_from_log(
            key_logs, self.history, self.example, self.network, self.clone, horizon_s(twin), config.from_logs,
            config.seeds, config.from_logs_updates, config.held_out, progress, keep,
        )  # fmt: skip


def train_contenders(
    key: Array,
    twin: PlacementTwin,
    config: TrainingConfig,
    progress: Progress,
    *,
    keep: Path | None = None,
    ahead: Callable[[Sequence[str]], None] = lambda names: None,
    begun: Background[TrainingStart] | None = None,
) -> Contenders:
    """Trains the clone, one policy for each seed and all other candidates of the ladder.

    Args:
        key: PRNG key; each seed's own key is folded in.
        twin: Where to train.
        config: How.
        progress: Where to show how far it is.
        keep: Folder for what is not finished: killed and called again, training goes on from there, to the same bits.
        ahead: Called with the names of parts that `train_part` can make, each alone, before they are needed.
        begun: `start_of` this very twin's log, where it was begun before the twin was there.
    """
    config = even_streams(config, twin.config.num_members, twin.encoding.num_views)
    rules = _rules(jax.random.fold_in(key, _RULES), twin, config, progress, keep)
    start = begun.result() if begun else _start(key, twin, config, progress, keep)
    in_twin = config.seeds if config.num_updates else ()
    ahead([*(f"{SEED} {seed}" for seed in in_twin), *config.from_logs])
    referee, correctors = _referee(key, twin, config, start, rules)
    key_residual, beside = jax.random.fold_in(key, _RESIDUAL), NotesAlone(progress)
    corrected = Background(
        lambda: _residual(
            key_residual, twin, start.example, rules, correctors, referee.select, config, beside, keep
        )
    )
    runs = start.in_twin(key, twin, referee.select, config, progress, keep)
    with progress.stage("correct the best rule (begun beside)"):
        rules = rules | corrected.result()
    learned, searches = start.from_log(key, twin, config, progress, keep)
    found = Schedulers(
        start.clone,
        stacked([run.best.params.actor for run in runs], start.clone),
        start.clone_curve,
        stacked([run.info.reward for run in runs], np.zeros(0)),
        stacked([run.info.kl_to_clone for run in runs], np.zeros(0)),
        stacked([run.evaluations for run in runs], np.zeros(0)),
        learned,
        jax.tree.map(np.asarray, rules),
        {},
        searches,
    )
    windows = twin.disjoint_windows()
    episodes = refereed(episodes_of(twin, config), twin.encoding)
    logged = logged_value(start.history, windows, episodes)
    return Contenders(referee, start.network, correctors, found, config.most_response, logged)


def _referee(
    key: Array, twin: PlacementTwin, config: TrainingConfig, start: TrainingStart, rules: Mapping[str, PyTree]
) -> tuple[Referee, dict[str, Actor]]:
    """The referee, and the networks that may correct a rule.

    Of the rules their kinds count, tuned or not: a process that trains one part alone makes the same referee.
    """
    known = [(rung.network, rung.params) for rung in _rule_rungs(rules)] + [(start.network, start.clone)]
    correctors = correctors_of(start.example, rules, config.network) if config.residual_updates else {}
    known += [(one, shaped_as(one, key, rules, rule)) for rule, one in correctors.items()]
    return referee_of(key, twin, config, known), correctors


def referee_of(
    key: Array, twin: PlacementTwin, config: TrainingConfig, known: Sequence[tuple[Actor, PyTree]]
) -> Referee:
    """The referee of a training with this key: with the members held out, see `held_out_referee`."""
    episodes, held_out = refereed(episodes_of(twin, config), twin.encoding), members_of(twin)[1]
    return held_out_referee(jax.random.fold_in(key, _LADDER), twin, episodes, held_out, known)


def _start(
    key: Array, twin: PlacementTwin, config: TrainingConfig, progress: Progress, keep: Path | None
) -> TrainingStart:
    return start_of(key, twin.disjoint_windows(), twin.encoding, config, progress, keep)


def start_of(
    key: Array,
    windows: Windows,
    encoding: Encoding,
    config: TrainingConfig,
    progress: Progress,
    keep: Path | None = None,
) -> TrainingStart:
    """The log and its clone, which is taken from `keep` where it is kept; `windows`: a twin's disjoint ones."""
    key_clone = jax.random.split(key, 3)[0]
    with progress.stage("follow the log", unit="windows") as stage:
        history = replay_log(windows, encoding, stage)
    example = example_in(history)
    network = NETWORKS[config.network](example)

    def fit() -> PyTree:
        with progress.stage("clone", total=config.clone_updates, unit="updates") as stage:
            clone, curve = fit_clone(
                key_clone, history, example, network, config.clone_updates, config.clone_streams, config.held_out,
                stage, keep and keep / f"on-the-way-{CLONE}",
            )  # fmt: skip
        return jax.tree.map(np.asarray, clone), curve

    shapes = jax.eval_shape(network.init, key_clone)
    return TrainingStart(
        history, example, network, *kept_arrays(keep and keep / CLONE, fit, lambda: (shapes, 0))
    )


def train_part(key: Array, twin: PlacementTwin, config: TrainingConfig, keep: Path, name: str) -> None:
    """Makes one part of `train_contenders` and keeps it: the policy of a seed ("seed 3") or a learner from the log.

    Args:
        key, twin, config, keep: As of `train_contenders`, which takes the part from `keep`.
        name: Of the part.
    """
    config = even_streams(config, twin.config.num_members, twin.encoding.num_views)
    start, quiet = _start(key, twin, config, SilentProgress(), keep), SilentProgress()
    kind, _, seed = name.partition(" ")
    if kind == SEED:
        referee, _ = _referee(key, twin, config, start, rules_of(twin))
        start.in_twin(key, twin, referee.select, replace(config, seeds=(int(seed),)), quiet, keep)
    else:
        start.from_log(key, twin, replace(config, from_logs=(name,)), quiet, keep)


def _residual(
    key: Array,
    twin: PlacementTwin,
    example: Example,
    rules: Mapping[str, PyTree],
    correctors: Mapping[str, Actor],
    evaluate: Evaluator,
    config: TrainingConfig,
    progress: Progress,
    keep: Path | None,
) -> dict[str, PyTree]:
    """PPO in the twin from the best of the rules, correcting its scores; nothing where it is not configured."""
    if not correctors:
        return {}
    folder = keep and keep / RESIDUAL
    best, _ = chosen_of(climb(_rule_rungs(rules), evaluate, keep=folder and folder / LADDER))
    network = correctors[kind_of(rules[best])]
    start = on_rule(jax.jit(network.init)(key), rules[best])
    alone = replace(
        config,
        seeds=config.seeds[:1],
        num_updates=config.residual_updates,
        entropy=0.0,
        kl_to_clone=RESIDUAL_KL,
    )
    (run,) = train_in_twin(key, twin, example, network, start, evaluate, alone, progress, folder)
    return {RESIDUAL: run.best.params.actor}


def _rule_rungs(rules: Mapping[str, PyTree]) -> list[Rung]:
    """The rules from the simplest on."""
    actors = {rule: rule_actor(rule) for rule in RULES}
    plain = {tuned: rule for rule, tuned in TUNED.items()}
    return [
        Rung(name, 0, actors[kind_of(rules[name])], rules[name], is_rule=True, tunes=plain.get(name, ""))
        for name in DESCRIPTIONS
        if name in rules
    ]


def _ladder(
    contenders: Contenders, progress: Progress, is_trusted: bool, keep: Path | None
) -> dict[str, RungStep]:
    """How rules, what corrects the best one, the clone, learners from logs and the policies from the twin did with the
    members held out; what is nearest to a rule comes first, so that others must beat it."""
    referee, network, found = contenders.referee, contenders.network, contenders.found
    rungs = _rule_rungs(found.rules)
    if RESIDUAL in found.rules:
        params = found.rules[RESIDUAL]
        corrector = contenders.correctors[str(network_facts(params).corrects)]
        rungs.append(Rung(RESIDUAL, 0, corrector, params, corrects_rule=True))
    rungs.append(Rung(CLONED, 0, network, found.clone))
    folder = keep and keep / LADDER
    rows = {
        name: select_row(referee.select, network, params, folder and folder / name)
        for name, params in found.from_logs.items()
    }
    if found.num_trained:
        rows[TWIN] = best_seed(found)
    rungs += [Rung(name, row, network, policy_params(found, name, row)) for name, row in rows.items()]
    with progress.stage("ladder", unit="rungs") as stage:
        steps = climb(
            rungs, referee.rank, is_trusted=is_trusted, most_response=contenders.most_response,
            logged=contenders.logged, clone=CLONED, keep=folder, stage=stage,
        )  # fmt: skip
    worse = "warning: " if beside_the_log(steps) else ""
    progress.note(f"{worse}ladder: {in_words(steps, is_trusted=is_trusted)}")
    return steps


def _rules(
    key: Array, twin: PlacementTwin, config: TrainingConfig, progress: Progress, keep: Path | None
) -> dict[str, PyTree]:
    """The rules that the log supports, by name, and the tuned ones beside them."""
    rules = rules_of(twin)
    progress.note(rules_in_words(rules, twin.encoding))
    if config.tuning_streams:
        with progress.stage("tune rules in the twin", unit="rounds") as stage:
            episodes, model = episodes_of(twin, config), members_of(twin)[0]
            num_requests = config.tuning_streams * twin.windows.num_steps
            num_streams, varied = _streams_for(num_requests, episodes, model), config.randomisation
            rules |= kept_arrays(
                keep and keep / RULES_TUNED,
                lambda: tune_rules(key, twin, episodes, model, rules, num_streams, stage, varied)[0],
                lambda: {TUNED[tunable(rules)]: rules[tunable(rules)]},
            )
    return rules


def horizon_s(twin: PlacementTwin) -> float:
    """Time over which later rewards are discounted to 1/e."""
    return 2.0 * twin.encoding.problem.memory_s


def train_in_twin(
    key: Array,
    twin: PlacementTwin,
    example: Example,
    network: Actor,
    clone: PyTree,
    evaluate: Evaluator,
    config: TrainingConfig,
    progress: Progress,
    keep: Path | None,
) -> list[Selected]:
    """PPO in the twin from the parameters of a clone, one run for each seed; unfinished runs are kept in `keep`.

    The best update of a run is that of the highest mean reward of its greedy policy with the members held out.
    """
    settings = PPOConfig(
        horizon_s=horizon_s(twin),
        gae_lambda=config.gae_lambda,
        entropy=config.entropy,
        kl_to_clone=config.kl_to_clone,
        learning_rate=config.learning_rate,
    )
    algorithm = ppo(example, settings, clone, network)
    experience = rollouts_in(twin, members_of(twin)[0], config)

    def held_out_value(state: PyTree) -> float:
        return evaluate(network, state.params.actor).mean

    total, runs = config.num_updates * len(config.seeds), []
    with progress.stage("train in the twin", total=total, unit="updates") as stage:
        for number, seed in enumerate(config.seeds):
            first = number * config.num_updates

            def show(done: int, seen: float, first: int = first, seed: int = seed) -> None:
                stage(first + done, text=f"seed {seed}: {seen:.4f} with members held out")

            checkpoint = None if keep is None else keep / f"seed-{seed}.npz"
            runs.append(
                train_selecting(
                    jax.random.fold_in(key, seed), algorithm, experience, config.num_updates, held_out_value,
                    updates_per_look=config.updates_per_look, checkpoint=checkpoint, on_evaluation=show,
                )
            )  # fmt: skip
    return runs


def _streams_for(num_requests: int, episodes: Windows, model: AnswerModel) -> int:
    """Streams of episodes that make up about so many requests, as many of them for every member."""
    num_members = len(jax.tree.leaves(model.parameters)[0])
    return max(1, num_requests // (episodes.num_steps * num_members)) * num_members
