"""Dispatchers and orchestrators of the user's: what is taken, and what is left out by name."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation import SlotPolicies, UnitValues, compare, shifted_days
from evaluation.baselines import LEAST_LOADED
from evaluation.comparison.bootstrap import IntervalConfig
from evaluation.problems.orchestration.bench import NO_ENTRANTS, Pair
from evaluation.problems.orchestration.comparing import (
    REFERENCE,
    PlayConfig,
    compare_pairs,
    name_of,
    play_pairs,
)
from evaluation.problems.orchestration.simulating import simulate_slots
from evaluation.problems.orchestration.user_pairs import user_pairs
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.progress import SilentProgress
from tests.evaluation.test_slot_logs import LOG, WORLD
from twin import fit
from twin.orchestration.frame_state import Scaling
from twin.orchestration.learned import learned_chance


def first_legal(_key, _observation, legal):
    """A dispatcher that JAX can trace."""
    return jnp.argmax(legal, axis=0)


def in_numpy(_key, _observation, legal):
    """The same in plain NumPy."""
    return np.argmax(np.asarray(legal), axis=0)


def last_node(_key, _observation, legal):
    """Illegal wherever the last node does not take the request."""
    return jnp.full(legal.shape[1:], legal.shape[0] - 1, jnp.int32)


def unwell(_key, _observation, _legal):
    raise RuntimeError("not today")


def idle(_key, state):
    """An orchestrator that changes nothing, in whole numbers of another width than ours."""
    nothing = jnp.zeros((LOG.frames.num_changes, *state.clock_s.shape), jnp.int8)
    return Scaling(nothing, nothing)


def half(key, state):
    """One that forgets the nodes."""
    return idle(key, state)._replace(node=None)


CHANCES = {}


def chance_of(twin):
    """One for all pairs, so that they share a program."""
    return CHANCES.setdefault(id(twin), learned_chance(twin.edge, twin.tables))


def in_my_model(pair, days):
    """The day in the twin that was trained in."""
    assert len(days.history().arrival_s) == days.archive.num_rows("requests", days.days[0])
    counts = pair.play(jax.random.key(0), chance_of(days.twin), 2, 2)
    arrived = np.asarray(counts.arrived)
    return UnitValues({"on_time": np.asarray(counts.on_time) / arrived}, arrived)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (SlotPolicies("least_loaded", "hpa"), "names both sides"),
        (SlotPolicies("least_loded", idle), "names 'least_loded'.*allowed: a function, or random"),
        (SlotPolicies(first_legal, "plan"), "names 'plan'.*allowed: a function, or static"),
        ("hpa", "is no function"),
        (Path("bundle"), "is the folder of a bundle.*allowed: a function.*an evaluation.SlotPolicies"),
    ],
)
def test_what_cannot_be_a_side_is_named(policy, words: str) -> None:
    no_twin = None  # names are looked at first
    refused = user_pairs({"mine": policy}, ["other"], no_twin, NO_ENTRANTS).refused
    assert re.search(words, str(refused["mine"]), re.DOTALL)


@pytest.mark.slow
def test_policies_of_ones_own_stand_in_a_comparison_and_those_that_fail_are_named(tmp_path) -> None:
    simulate_slots(WORLD, 3, LOG, 0, tmp_path / "log")
    split = shifted_days(Archive(tmp_path / "log"), "0d", num_days=1)
    twin = fit("orchestration", split.train)
    found = compare(
        {
            "mine": first_legal, "slow": in_numpy, "rule": LEAST_LOADED, "bad": last_node, "raises": unwell,
            "both": SlotPolicies(first_legal, idle), "still": SlotPolicies(first_legal, "static"),
            "scales": SlotPolicies("least_loaded", idle), "shapeless": SlotPolicies("least_loaded", first_legal),
            "half": SlotPolicies("least_loaded", half),
        },
        twin, split.test, play=PlayConfig(num_frames=2, num_runs=2),
    ).comparison  # fmt: skip
    values = {cell.policy: cell.estimate.value for cell in found.cells if cell.judge == "truth"}
    assert values["mine"] == values["slow"]
    assert values["both"] == values["still"]  # nothing is changed, by one's own rule or by the static one
    assert values["scales"] == values["least_loaded+static"]
    assert values["rule"] == values["least_loaded+planned"]
    refused = {
        "bad": "not legal in",
        "raises": "not today",
        "shapeless": "raised",
        "half": "returns a Scaling",
    }
    assert set(found.refused) == set(refused)
    assert all(words in found.refused[name] for name, words in refused.items())
    assert not set(refused) & set(values)
    assert {one.kind for one in found.policies if one.name in ("mine", "both")} == {"user"}


@pytest.mark.slow
def test_a_judge_of_ones_own_plays_the_pairs_that_our_judges_play(tmp_path) -> None:
    simulate_slots(WORLD, 3, LOG, 0, tmp_path / "log")
    split = shifted_days(Archive(tmp_path / "log"), "0d", num_days=1)
    twin, play = fit("orchestration", split.train), PlayConfig(num_frames=2, num_runs=2)
    pairs = [REFERENCE, Pair("random", "static")]
    found = compare_pairs(
        {"mine": SlotPolicies(first_legal, "static")},
        twin,
        *split.test,
        SilentProgress(),
        play=play,
        intervals=IntervalConfig(num_replicates=200),
        pairs=pairs,
        judges={"model": in_my_model, "broken": lambda pair, days: pair},
    )
    assert set(found.refused) == {"judge broken"}
    mine = {cell.policy: cell.estimate.value for cell in found.cells if cell.judge == "model"}
    assert set(mine) == {"mine", *map(name_of, pairs)}
    for pair, (arrived, on_time) in play_pairs(twin.edge, chance_of(twin), twin, pairs, play).items():
        assert mine[name_of(pair)] == pytest.approx(on_time.sum() / arrived.sum())
    with pytest.raises(ConfigError, match="'truth' is taken by a judge"):
        compare_pairs(
            {}, twin, *split.test, SilentProgress(), play=play, pairs=pairs, judges={"truth": in_my_model}
        )
