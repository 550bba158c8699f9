"""Plans tuned in a twin: what is tried, and which one is left."""

import jax
import numpy as np
import pytest

from evaluation.problems.orchestration.simulating import simulate_slots
from logs_schema import Archive
from offline_rl.errors import TrainingError
from offline_rl.rules.orchestration.planned import ADVICE
from offline_rl.rules.orchestration.tuned_plan import RANGES, PlanTuning, TunedPlan, numbers_of, tune_plan
from tests.evaluation.test_slot_logs import LOG, WORLD
from twin.orchestration.fit import FittedCluster, fit_orchestration

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> FittedCluster:
    out = tmp_path_factory.mktemp("slots") / "log"
    simulate_slots(WORLD, 1, LOG, 0, out)
    archive = Archive(out)
    return fit_orchestration(archive, archive.days("requests"))


@pytest.fixture(scope="module")
def found(fitted: FittedCluster) -> TunedPlan:
    return tune_plan(jax.random.key(0), fitted, PlanTuning(num_candidates=8, num_streams=4, num_frames=12))


def test_the_plan_as_it_stands_is_tried_first_and_the_others_are_near_the_best_of_many(
    found: TunedPlan,
) -> None:
    assert found.candidates[0] == ADVICE
    assert len(found.candidates) == len(set(found.candidates)) == 8
    assert found.config in found.candidates
    best = np.log(list(numbers_of(found.candidates[1]).values()))
    low, high = np.log(np.array(list(RANGES.values()))).T
    assert ((best >= low) & (best <= high)).all() or found.candidates[1] == ADVICE
    others = np.log([list(numbers_of(one).values()) for one in found.candidates[2:]])
    assert (np.abs(others - best) < 0.5 * (high - low)).all()


def test_the_one_that_is_left_was_best_on_the_same_requests(found: TunedPlan) -> None:
    values, plays = found.tuned.values, found.tuned.num_plays
    longest = plays == plays.max()
    assert found.tuned.best in np.flatnonzero(longest)
    assert values[found.tuned.best] == values[longest].max()


def test_the_same_key_tunes_the_same_plan(found: TunedPlan, fitted: FittedCluster) -> None:
    again = tune_plan(jax.random.key(0), fitted, PlanTuning(num_candidates=8, num_streams=4, num_frames=12))
    assert again.config == found.config
    np.testing.assert_array_equal(again.tuned.values, found.tuned.values)


def test_another_number_of_plans_than_a_power_of_two_is_refused(fitted: FittedCluster) -> None:
    with pytest.raises(TrainingError, match="6 candidates"):
        tune_plan(jax.random.key(0), fitted, PlanTuning(num_candidates=6))
