"""What training would hand over is chosen by training's own function, and plays the traces of its seed."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from evaluation.commands.output import as_text
from evaluation.reproduction import drpc, drpc_ladder, drpc_learners
from evaluation.reproduction.drpc import MEASURES, DrpcConfig, table
from evaluation.reproduction.drpc_ladder import CHOSEN_FROM, ladder_step, played_as_chosen, read_choices
from evaluation.reproduction.drpc_learners import IN_TRUTH
from evaluation.reproduction.showing_drpc import as_table
from evaluation.simulator.applications.presets import application
from logs_schema.progress import SilentProgress
from offline_rl.autoscaling.config import SCALE_CODE, ScaleConfig
from offline_rl.recipes import scaling_training
from offline_rl.recipes.scaling_training import try_in_twin
from offline_rl.rules.autoscaling.published import Setting

TWIN = SimpleNamespace(load=None, laws=SimpleNamespace(work_s=np.zeros((2, 1))))


def played(reward):
    return {
        "chosen": {name: list(reward) for name in MEASURES},
        "frontier": [],
        "setting": {},
    }


@pytest.fixture
def earning(monkeypatch):
    """A twin in which an autoscaler is a number, and earns it in every episode."""
    monkeypatch.setattr(scaling_training, "made_rates", lambda *_: np.zeros(1000))
    monkeypatch.setattr(
        scaling_training, "_tried", lambda worth, *_: {"reward": np.full(20, worth), "cpu_cores": np.ones(20)}
    )
    monkeypatch.setattr(
        scaling_training,
        "_over_log",
        lambda worths, *_: {name: {"gain": float(one), "least": float(one)} for name, one in worths.items()},
    )


def choice(chosen, seed):
    return {
        "seed": seed,
        "chosen": chosen,
        "rule": "hpa_sized",
        "best_learned": f"students-{seed}",
        "gain": 0.5,
        "gain_low": None,
        "held_back": "",
    }


@pytest.mark.parametrize(
    ("off_by", "is_trusted", "taken", "why"),
    [(0.5, True, "students-3", ""), (1.5, True, "hpa_sized", "off by"), (0.5, False, "hpa_sized", "failed")],
)
def test_the_better_rule_stays_where_the_gain_is_not_to_be_believed(earning, off_by, is_trusted, taken, why):
    candidates = {"hpa": 9.0, "hpa_calibrated": -3.0, "hpa_sized": -2.0, "lookahead": 9.0, "students-3": -1.0}
    trial = try_in_twin(candidates, TWIN, None, None, ScaleConfig(), off_by=off_by, is_trusted=is_trusted)
    assert (trial.rule, trial.taken.name, trial.taken.best) == ("hpa_sized", taken, "students-3")
    assert why in trial.taken.why
    facts = trial.facts()
    assert (facts["recommended"], facts["off_by"], facts["gain"]) == (taken, off_by, pytest.approx(1.0))
    assert facts["over_log"]["students-3"] == {"gain": -1.0, "least": -1.0}
    assert facts["tried"]["lookahead"] == {"reward": 9.0, "cpu_cores": 1.0}


def test_every_seed_has_a_choice_among_its_own_networks(earning, monkeypatch, tmp_path):
    """The networks of seed 1 are better than the rules, those of seed 0 are not."""
    school = SimpleNamespace(twin=TWIN, log=None, scaling=SimpleNamespace(slo_s=0.2), limits=None)
    worth = {kind: np.array([-5.0, -4.0]) for kind in CHOSEN_FROM} | {
        "students_lookahead": np.array([-4, -1])
    }
    monkeypatch.setattr(drpc_ladder, "school_of", lambda *_: school)
    monkeypatch.setattr(drpc_ladder, "load_params", lambda _inputs, kind, _school: worth[kind])
    monkeypatch.setattr(drpc_ladder, "value_off_by", lambda *_: 0.5)
    monkeypatch.setattr(drpc_ladder, "trained_autoscaler", lambda _twin, _task, _kind, params: float(params))
    rules = {"hpa_calibrated": lambda: Setting(-2.0), "hpa_sized": lambda: Setting(-3.0)}
    step = ladder_step("chain", "archive", 2, 80, rules)
    assert set(CHOSEN_FROM) <= set(step.inputs)
    assert step.code_version == SCALE_CODE
    step.build(tmp_path, {}, SilentProgress())
    choices = read_choices(tmp_path)
    assert [one["chosen"] for one in choices] == ["hpa_calibrated", "students_lookahead"]
    assert [one["recommended"] for one in choices] == ["hpa_calibrated", "students_lookahead-1"]
    assert [one["gain"] for one in choices] == [-2.0, 1.0]


def test_what_was_chosen_for_a_seed_plays_the_traces_of_that_seed():
    found = {"hpa_sized": played([1.0, 2.0, 3.0, 4.0]), "students": played([5.0, 6.0, 7.0, 8.0])}
    choices = [choice("students", 0), choice("hpa_sized", 1)]
    assert played_as_chosen(choices, found, MEASURES)["chosen"]["reward"] == [5.0, 6.0, 3.0, 4.0]


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Names of the steps that a comparison runs, none of which does anything."""
    names = []

    def run(steps, _workdir, _progress, done=None):
        names.extend(step.name for step in steps)
        for step in steps:
            (tmp_path / step.name).mkdir()
        return (done or {}) | {step.name: tmp_path / step.name for step in steps}

    def read(folder):
        return played([1.0, 2.0, 3.0, 4.0] if folder.name == "play-hpa" else [5.0, 6.0, 7.0, 8.0])

    monkeypatch.setattr(drpc, "run_job", run)
    monkeypatch.setattr(drpc, "load_application_twin", lambda _: SimpleNamespace(deployments=()))
    monkeypatch.setattr(drpc, "Archive", lambda _: None)
    monkeypatch.setattr(drpc, "read_scaling_log", lambda *_, **__: None)
    monkeypatch.setattr(drpc, "task_of", lambda *_: (None, None))
    monkeypatch.setattr(drpc, "autoscalers", lambda *given: {name: lambda: None for name in given[-1]})
    monkeypatch.setattr(drpc, "read_choices", lambda _: [choice("students", 0), choice("hpa", 1)])
    monkeypatch.setattr(drpc, "_read", read)
    return names


def small(*autoscalers):
    return DrpcConfig(preset="chain", log_days=1, shifts=(0, 30), num_seeds=2, autoscalers=autoscalers)


def test_the_ladder_has_all_networks_trained_and_plays_what_it_chose_alone(ran, tmp_path):
    found = drpc.compare(small("ladder", "hpa"), tmp_path, SilentProgress())
    assert ran == ["archive", "twin", *CHOSEN_FROM, "ladder", "play-hpa", "play-students"]
    rewards = {(row["autoscaler"], row["shift_days"]): row["reward"] for row in found["rows"]}
    assert rewards == {("hpa", 0): 2.0, ("hpa", 30): 3.0, ("ladder", 0): 4.0, ("ladder", 30): 5.0}
    assert [one["chosen"] for one in found["chosen"]] == ["students", "hpa"]
    told = json.dumps(found) and as_text(as_table(found))
    assert "the ladder's choice in the twin" in told
    assert "over lookahead" not in told


@pytest.mark.parametrize(
    ("asked", "trained"),
    [((), []), (("students",), ["teacher", "students"]), ((IN_TRUTH,), [IN_TRUTH])],
)
def test_without_the_ladder_only_what_is_asked_for_is_trained(ran, tmp_path, asked, trained):
    found = drpc.compare(small("hpa", *asked), tmp_path, SilentProgress())
    assert ran == ["archive", "twin", *trained, "play-hpa", *(f"play-{name}" for name in asked)]
    assert found["chosen"] == []
    assert {"ladder", IN_TRUTH} < set(small().names)


@pytest.mark.parametrize(("kind", "system"), [("teacher_lookahead", "drifting"), (IN_TRUTH, "truth")])
def test_the_planner_is_imitated_in_the_truth_for_judges_alone(monkeypatch, kind, system):
    school = SimpleNamespace(
        drifting="drifting", truth=lambda: "truth", system="twin", scaling=None, limits=None
    )
    monkeypatch.setattr(drpc_learners, "teacher_of", lambda _key, where, *_: where)
    assert drpc_learners.learn(None, kind, school, planner="planner") == system
    assert IN_TRUTH not in CHOSEN_FROM


def test_nobody_gains_by_what_no_log_tells():
    """Optional services stay on, and memory that the log does not show to be enough is not asked for."""
    app = application("boutique")
    granted = np.full((3, len(app.services)), 0.5)
    columns = dict.fromkeys(("cpu_cores", "num_replicas"), np.ones_like(granted))
    log = SimpleNamespace(columns=columns, memory_granted=granted, interval_s=30.0)
    scaling, limits = drpc_learners.task_of(app, log)
    np.testing.assert_array_equal(limits.min_replicas, 1.0)
    np.testing.assert_array_equal(limits.min_memory_gib, 0.5)
    assert float(scaling.violation_cores) == pytest.approx(3.0 * len(app.services) * (1.0 + 0.5 / 8.0))


def test_shares_and_times_keep_their_ranges_over_seeds_that_differ_widely():
    shares = [0.0, 0.0, 0.9]
    config = DrpcConfig(num_seeds=3, shifts=(0,))
    played = {"chosen": dict.fromkeys(MEASURES, shares), "frontier": [], "setting": {}}
    (row,) = table(config, {"hpa": played})["rows"]
    assert (row["failures_low"], row["failures_high"]) == (0.0, 1.0)
    assert (row["p99_response_s_low"], row["cpu_core_hours_low"]) == (0.0, 0.0)
    assert row["p99_response_s_high"] > 1.0
    assert row["reward_low"] < 0.0
