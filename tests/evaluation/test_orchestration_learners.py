"""Everything that `reproduce kais` and `reproduce kmps` train goes from a log to a row of the truth."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from evaluation.comparison.bootstrap import Estimate
from evaluation.problems.orchestration.bench import (
    Entrants,
    OrchestrationBenchConfig,
    Pair,
    PairScore,
    bench_orchestration,
)
from evaluation.problems.orchestration.rivals import rivals
from evaluation.problems.orchestration.simulating import SlotLogConfig, simulate_slots
from evaluation.problems.orchestration.training import chosen_pair
from evaluation.reproduction import orchestration_learners, orchestration_repeats
from evaluation.reproduction.orchestration import OrchestrationConfig, as_row_of_seeds
from evaluation.reproduction.orchestration_learners import learners
from evaluation.reproduction.orchestration_pairs import (
    APART,
    LEARNED_PAIRS,
    NAMES,
    absent,
    name_of,
    pairs_named,
    pairs_of,
)
from evaluation.reproduction.orchestration_repeats import BEST_BASELINE, over_worlds, repeated
from evaluation.simulator.slots import SlotConfig
from evaluation.simulator.world import World
from evaluation.simulator.world_files import chosen_world
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import SilentProgress
from offline_rl.orchestration.config import COPIES, TrainingBudget
from offline_rl.rules.orchestration.planned import ADVICE
from tests.evaluation.slot_runs import small_kais
from twin.orchestration.fit import FittedCluster, fit_orchestration
from twin.orchestration.frame_config import FrameConfig

SLOTS = SlotConfig(node_places=6, queue_places=8, slots_per_frame=20, image_mib_per_gib=20.0)
FRAMES = FrameConfig(samples_per_frame=5)
BUDGET = TrainingBudget(
    num_updates=1, num_streams=COPIES, num_frames=2, num_slots=20, num_warm_up_slots=2, num_plans=2
)
LEARNERS = learners(BUDGET)
PLAYED = [name for name in LEARNERS if name not in {"kais_alternating", "kmps_alternating"}]
"""Every learner, and every way to train both sides, is among them."""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> FittedCluster:
    out = tmp_path_factory.mktemp("slots") / "log"
    simulate_slots(small_kais(2, 2), 1, SlotLogConfig(slots=SLOTS, frames=FRAMES), 1, out)
    archive = Archive(out)
    return fit_orchestration(archive, archive.days("requests"))


@pytest.mark.slow
@pytest.mark.parametrize("name", PLAYED)
def test_it_is_trained_in_the_twin_and_judged_in_the_truth(name: str, fitted: FittedCluster) -> None:
    own = rivals(fitted).joined(LEARNERS[name](fitted, 0, SilentProgress()))
    (pair, *_) = pairs_of([name])
    bench = OrchestrationBenchConfig(1, 2, num_frames=2, slots=SLOTS, frames=FRAMES)
    scores = bench_orchestration(small_kais(2, 2), (0,), [pair], bench, entrants=own)
    (score,) = (score for score in scores if score.pair == pair)
    assert 0.0 < np.mean(score.per_run) <= 1.0


@pytest.mark.slow
def test_a_decision_that_comes_at_once_is_the_decision_and_a_late_one_is_worse(fitted: FittedCluster) -> None:
    """The same rule, said to be 0 s and 1.5 s late: 0 changes nothing, 1.5 s are long beside the deadlines here."""
    known = rivals(fitted)
    rule = known.dispatch["expected_on_time"]
    own = known.joined(Entrants({"at_once": rule, "late": rule}, delay_s={"at_once": 0.0, "late": 1.5}))
    bench = OrchestrationBenchConfig(2, 2, num_frames=4, slots=SLOTS, frames=FRAMES)
    pairs = [Pair(name, "static") for name in ("expected_on_time", "at_once", "late")]
    usual, at_once, late = (
        score.per_run for score in bench_orchestration(small_kais(2, 2), (0,), pairs, bench, entrants=own)
    )
    np.testing.assert_array_equal(usual, at_once)
    assert late.mean() < usual.mean() - 0.05


def test_every_name_of_the_papers_has_a_pair_and_what_is_missing_a_reason() -> None:
    named = (
        "greedy", "native", "gsp_ss", "firmament", "greedy_gpg", "cmmac_native", "greedy_native", "firmament_native",
        "kmps_without_gnn", "single_actor_critic", "static", "kais", "kmps", "expected_on_time", "lookahead",
    )  # fmt: skip
    untrained = OrchestrationConfig().untrained
    assert set(NAMES.values()) == set(named)
    assert set(NAMES) <= {*untrained, *LEARNED_PAIRS}
    assert all(untrained.count(pair) == 1 for pair in untrained)
    names = [name_of(pair) for pair in (*untrained, *LEARNED_PAIRS)]
    assert len(set(names)) == len(names)
    assert pairs_of(LEARNERS) == LEARNED_PAIRS
    assert Pair("cmmac", "hpa") in pairs_of(["cmmac"])
    assert Pair("cmmac", "gpg") not in pairs_of(["cmmac"])
    missing = {one["name"]: one["reason"] for one in absent([{"name": "greedy"}])}
    assert set(missing) == set(named) - {"greedy"}
    assert missing["kais"] == "not trained in this run: --learned cmmac,gpg"
    assert {name: APART[name] for name in ("kais_joint", "residual_alternating")} == {
        "kais_joint": "kais",
        "residual_alternating": "residual_and_gpg",
    }
    assert {name_of(Pair(name, name)) for name in APART} == set(APART)


def test_some_rows_are_chosen_by_name_and_unknown_ones_refused() -> None:
    untrained = OrchestrationConfig().untrained
    assert pairs_named(["lookahead", "greedy"], untrained) == (
        Pair("expected_on_time", "lookahead"),
        Pair("least_loaded", "static"),
    )
    with pytest.raises(ConfigError, match="no row 'gpg'"):
        pairs_named(["gpg"], untrained)


def test_who_is_unknown_is_refused_with_those_there_are() -> None:
    assert learners(BUDGET, ["none"]) == {}
    with pytest.raises(ConfigError, match="there is no learner 'sarsa'"):
        learners(BUDGET, ["sarsa"])


def test_what_is_trained_together_is_held_against_the_same_learners_apart() -> None:
    def row(name: str, on_time: float) -> dict[str, object]:
        pair = {"dispatch": name, "orchestration": name, "day": 0}
        return {"name": name, **pair, "on_time": on_time, "cost_mib": 1.0, "num_trainings": 1}

    each = ((0.6, 0.65, 0.5), (0.7, 0.68, 0.9))
    names = ("kais", "kais_joint", "kmps_joint")  # KMPS' learners were not trained apart
    tables = [{"rows": [row(*one) for one in zip(names, shares, strict=True)]} for shares in each]
    (gap,) = over_worlds(tables)["differences"]
    assert (gap["name"], gap["reference"], gap["on_time"]) == ("kais_joint", "kais", pytest.approx(0.015))
    np.testing.assert_allclose(gap["each"], [0.05, -0.02])


def test_several_repeats_have_students_interval_and_differences_paired_by_repeat() -> None:
    """By hand: means .6 and .7 of two repeats; the half width is 12.706 deviations over the root of two."""

    def row(pair: Pair, on_time: float, num_trainings: int) -> dict[str, object]:
        return {
            "name": name_of(pair),
            **pair._asdict(),
            "day": 0,
            "on_time": on_time,
            "cost_mib": 1.0,
            "num_trainings": num_trainings,
        }

    greedy, native, own = (
        Pair("least_loaded", "static"),
        Pair("k8s_default", "hpa"),
        Pair("residual", "planned"),
    )
    rival = Pair("expected_on_time", "planned")
    shares = ((0.5, 0.55, 0.6), (0.7, 0.6, 0.8))
    found = over_worlds(
        [
            {
                "rows": [row(greedy, one, 0), row(native, two, 0), row(rival, 0.58, 0), row(own, three, 1)],
                "absent": [],
            }
            for one, two, three in shares
        ]
    )
    greedily, _, _, learned = found["rows"]
    assert (greedily["on_time"], greedily["num_worlds"], greedily["num_trainings"]) == (
        pytest.approx(0.6),
        2,
        0,
    )
    assert (learned["on_time"], learned["each"], learned["num_trainings"]) == (
        pytest.approx(0.7),
        [0.6, 0.8],
        2,
    )
    assert learned["high"] - learned["on_time"] == pytest.approx(
        12.706 * np.std([0.6, 0.8], ddof=1) / 2**0.5, rel=1e-3
    )
    gaps = {(gap["name"], gap["reference"]): gap["each"] for gap in found["differences"]}
    assert list(gaps) == [
        ("expected_on_time", BEST_BASELINE),
        ("residual_and_planned", BEST_BASELINE),
        ("residual_and_planned", "expected_on_time"),
    ]
    np.testing.assert_allclose(list(gaps.values()), [[0.03, -0.12], [0.05, 0.1], [0.02, 0.22]])


def test_every_repeat_has_a_world_a_log_and_trainings_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def recorded(world: World, config: OrchestrationConfig, out: Path, *_: object) -> dict[str, object]:
        out.mkdir()
        made.append((world.seed, config.seed, config.train_seeds, config.bench.seed, out))
        return {"rows": [], "absent": []}

    monkeypatch.setattr(orchestration_repeats, "reproduce", recorded)
    worlds = partial(chosen_world, "kmps", None)
    found = repeated(worlds, OrchestrationConfig(), 3, tmp_path, {}, SilentProgress())
    assert found["interval"] == "95 % over 3 repeats of world, log, twin and training"
    assert all(len(set(one)) == 3 for one in zip(*made, strict=True))
    assert all((folder / "table.json").exists() for *_, folder in made)
    with pytest.raises(ConfigError, match="0 repeats"):
        repeated(worlds, OrchestrationConfig(), 0, tmp_path, {}, SilentProgress())


def test_one_seed_has_the_interval_of_its_runs_and_several_that_of_the_seeds() -> None:
    known = Estimate(0.7, 0.6, 0.8, 4)
    first = PairScore(
        Pair("residual", "planned"),
        30,
        dict.fromkeys(("on_time", "scheduling_mib"), known),
        known,
        np.full(4, 0.7),
    )
    alone = as_row_of_seeds([first])
    assert (alone["on_time"], alone["low"], alone["high"], alone["num_trainings"]) == (0.7, 0.6, 0.8, 1)
    shares = (0.5, 0.6, 0.7, 0.8, 0.9)
    several = as_row_of_seeds([first._replace(per_run=np.full(4, share)) for share in shares])
    assert (several["on_time"], several["num_trainings"]) == (pytest.approx(0.7), 5)
    assert 0.5 <= several["low"] < 0.7 < several["high"] <= 0.9


def test_the_rules_are_left_only_for_what_is_surely_better() -> None:
    runs = np.linspace(0.7, 0.8, 8)
    scatter = np.resize([0.05, -0.05], 8)
    luck, better = runs + 0.01 + scatter, runs + 0.02 + 0.1 * scatter
    tried = {"rules": runs, "residual+planned": luck, "rules+gpg": better}
    assert chosen_pair(tried) == "rules+gpg"
    assert chosen_pair({"rules": runs, "residual+planned": luck}) == "rules"
    assert chosen_pair({"rules": runs, "rules+gpg": runs - 0.1}) == "rules"
    # What is learned must beat the best of the rules, not the first
    central = {"rules": runs, "central+planned": better, "residual_central+planned": better + 0.01 + scatter}
    assert chosen_pair(central) == "central+planned"
    assert chosen_pair(central | {"residual_central+planned": better + 0.01}) == "residual_central+planned"


def test_a_plan_is_tuned_once_for_the_learners_of_a_twin_and_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(orchestration_learners, "tuned_plan", lambda *given: asked.append(given[2]) or ADVICE)
    tuned = orchestration_learners._tuned_once(BUDGET)
    one, other = object(), object()
    for twin, seed in ((one, 0), (one, 0), (one, 1), (other, 1)):
        assert tuned(twin, seed, SilentProgress()) is ADVICE
    assert asked == [0, 1, 1]


@pytest.mark.parametrize("delay_s", [-0.1, float("inf"), float("nan")])
def test_decisions_come_no_time_that_cannot_be_late(delay_s: float) -> None:
    with pytest.raises(ConfigError, match="delay_s") as refused:
        TrainingBudget(delay_s=delay_s)
    assert refused.value.where == "[orchestration]"
