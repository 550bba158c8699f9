"""The figures beside the tables of `reproduce kais` and `reproduce kmps`: carry-over, and dispatch in one place."""

from pathlib import Path

import pytest

from evaluation.problems.configuration import RunConfig
from evaluation.problems.orchestration.bench import OrchestrationBenchConfig
from evaluation.problems.orchestration.kit import ORCHESTRATION_KIT
from evaluation.reproduction.carry_over import CARRIED, carry_over
from evaluation.reproduction.centralised import centralised
from evaluation.reproduction.orchestration import OrchestrationConfig, twin_of
from evaluation.reproduction.showing_orchestration import as_tables
from evaluation.simulator.slots import SlotConfig
from logs_schema.progress import SilentProgress
from offline_rl.orchestration.config import COPIES, ORCHESTRATION_CODE, TrainingBudget
from offline_rl.recipes.slot_learners import ANY_SIZE
from tests.evaluation.slot_runs import small_kais
from twin.orchestration.frame_config import FrameConfig

SLOTS = SlotConfig(node_places=6, queue_places=8, slots_per_frame=20, image_mib_per_gib=20.0)
BENCH = OrchestrationBenchConfig(2, 2, num_frames=4, slots=SLOTS, frames=FrameConfig(samples_per_frame=5))
CONFIG = OrchestrationConfig(days=(0,), train_seeds=(0,), bench=BENCH)
BUDGET = TrainingBudget(num_updates=1, num_streams=COPIES, num_frames=2, num_slots=20, num_warm_up_slots=2)


@pytest.mark.slow
def test_what_is_trained_on_six_nodes_is_judged_on_eleven_without_training_there(tmp_path: Path) -> None:
    worlds = small_kais(2, 2), small_kais(3, 3)
    found = carry_over(worlds, CONFIG, BUDGET, tmp_path, SilentProgress())
    assert (found["trained_on"]["nodes"], found["judged_on"]["nodes"]) == (6, 11)
    assert (found["trained_on"]["access_points"], found["judged_on"]["access_points"]) == (2, 3)
    assert {(row["dispatch"], row["orchestration"]) for row in found["rows"]} >= set(CARRIED)
    assert all(0.0 < row["on_time"] <= 1.0 for row in found["rows"])
    assert {row["num_trainings"] for row in found["rows"] if row["dispatch"] == ANY_SIZE} == {1}


@pytest.mark.slow
def test_the_later_the_decisions_of_one_place_come_the_later_are_its_answers(tmp_path: Path) -> None:
    """At a third of the load nobody waits, so that an answer is later by the delay; loads raise response times."""
    world = small_kais(2, 2)
    fitted = twin_of(world, CONFIG, BENCH, tmp_path, SilentProgress())
    found = centralised(
        world, 0, BENCH, fitted, SilentProgress(), loads=(0.3, 1.5), delays_s=(0.0, 0.25, 1.5)
    )
    rows = {(row["load"], row["dispatch"], row["delay_s"]): row for row in found["rows"]}
    at_once, late = rows[0.3, "one_place", 0.0], rows[0.3, "one_place", 0.25]
    assert late["response_s"] - at_once["response_s"] == pytest.approx(0.25, abs=0.1)
    assert rows[0.3, "one_place", 1.5]["on_time_of_sent"] < at_once["on_time_of_sent"]
    assert rows[1.5, "access_points", 0.0]["response_s"] > rows[0.3, "access_points", 0.0]["response_s"]
    assert len(as_tables(found).rows) == 8


def test_all_steps_are_made_again_where_the_code_changes():
    config = RunConfig()
    plans = (
        ORCHESTRATION_KIT.fit(config),
        ORCHESTRATION_KIT.train(config),
        ORCHESTRATION_KIT.compare(config, "", {}),
    )
    assert {plan.code_version for plan in plans} == {ORCHESTRATION_CODE}
