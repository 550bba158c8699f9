"""Everything that `reproduce kais` and `reproduce kmps` train goes from a log to a row of the truth."""

from dataclasses import replace

import numpy as np
import pytest

from evaluation.comparison.bootstrap import Estimate
from evaluation.problems.orchestration.bench import (
    OrchestrationBenchConfig,
    Pair,
    PairScore,
    bench_orchestration,
)
from evaluation.problems.orchestration.rivals import rivals
from evaluation.problems.orchestration.simulating import SlotLogConfig, simulate_slots
from evaluation.reproduction.orchestration import as_row_of_seeds
from evaluation.reproduction.orchestration_learners import learned_pairs
from evaluation.simulator.frames import FrameConfig
from evaluation.simulator.slots import SlotConfig
from logs_schema import Archive
from logs_schema.progress import SilentProgress
from offline_rl.orchestration_config import COPIES, TrainingBudget
from tests.evaluation.slot_runs import small_kais
from twin.orchestration.fit import FittedCluster, fit_orchestration

SLOTS = SlotConfig(node_places=6, queue_places=8, slots_per_frame=20, image_mib_per_gib=20.0)
FRAMES = FrameConfig(samples_per_frame=5)
PAIRS = learned_pairs(TrainingBudget(num_updates=1, num_streams=COPIES, num_frames=2, num_slots=20))


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> FittedCluster:
    out = tmp_path_factory.mktemp("slots") / "log"
    simulate_slots(small_kais(2, 2), 1, SlotLogConfig(slots=SLOTS, frames=FRAMES), 1, out)
    archive = Archive(out)
    return fit_orchestration(archive, archive.days("requests"))


@pytest.mark.slow
@pytest.mark.parametrize("one", PAIRS, ids=lambda one: "-".join(one.pair))
def test_it_is_trained_in_the_twin_and_judged_in_the_truth(one, fitted: FittedCluster) -> None:
    entrants = one.learn(fitted, 0, SilentProgress())
    own = replace(
        rivals(fitted),
        dispatch={**rivals(fitted).dispatch, **entrants.dispatch},
        orchestration={**rivals(fitted).orchestration, **entrants.orchestration},
    )
    bench = OrchestrationBenchConfig(1, 2, num_frames=2, slots=SLOTS, frames=FRAMES)
    scores = bench_orchestration(small_kais(2, 2), (0,), [one.pair], bench, entrants=own)
    (score,) = (score for score in scores if score.pair == one.pair)
    assert 0.0 < np.mean(score.per_run) <= 1.0


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
    assert (alone["on_time"], alone["low"], alone["high"], alone["seeds"]) == (0.7, 0.6, 0.8, 1)
    shares = (0.5, 0.6, 0.7, 0.8, 0.9)
    several = as_row_of_seeds([first._replace(per_run=np.full(4, share)) for share in shares])
    assert (several["on_time"], several["seeds"]) == (pytest.approx(0.7), 5)
    assert 0.5 <= several["low"] < 0.7 < several["high"] <= 0.9
