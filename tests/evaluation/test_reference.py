"""The reference: all that is hidden is told truly, training keeps the best, a table that beats it is refused."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.commands import cli
from evaluation.comparison.bootstrap import Estimate
from evaluation.reproduction.benches import reference
from evaluation.reproduction.benches.reference import (
    TOLERANCE,
    ReferenceConfig,
    ReferenceTraining,
    TruthReference,
    load_reference,
    train_reference,
    write_reference,
)
from evaluation.reproduction.benches.reference_cache import REFERENCES, kept_reference, made_from
from evaluation.reproduction.benches.reference_view import NODE_NUMBERS, expect, reference_view
from evaluation.reproduction.benches.truth_bench import (
    REFERENCE,
    STALE_REFERENCE,
    TruthBenchConfig,
    bench_truth,
)
from evaluation.reproduction.ceiling import (
    BeatenReferenceError,
    beaten,
    best_rule,
    failures_avoided,
    refuse_beaten,
    share_of_reference,
)
from evaluation.simulator.conditions import conditions
from evaluation.simulator.laws import Law, lognormal
from evaluation.simulator.names import names_in
from evaluation.simulator.presets import preset
from evaluation.simulator.revealing import reveal_in, revealing
from evaluation.simulator.truth import truth_response
from evaluation.simulator.vocabulary import cluster_of
from logs_schema.errors import ConfigError, ProductError
from logs_schema.product import read_manifest
from logs_schema.stores import cache_folder
from offline_rl.selecting import Selected
from twin.environment import environment
from twin.placement.bookkeeping import PlacementConfig, placement
from twin.rollout import rollout

SMALL = preset("small")
TINY = ReferenceConfig(
    num_updates=2, most_updates=4, updates_per_look=1, requests_per_update=800, least_steps=100
)
BENCH = TruthBenchConfig(num_seeds=4, days_per_seed=2, num_steps=200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("references")


@pytest.fixture(scope="module")
def kept(folder):
    return kept_reference(SMALL, 0, TINY, folder)


@pytest.mark.slow
def test_the_same_seed_trains_the_same_reference_and_the_product_keeps_it(kept):
    again = train_reference(SMALL, 0, TINY)
    assert (kept.reference.preset, kept.reference.day) == ("small", 0)
    jax.tree.map(np.testing.assert_array_equal, kept.reference.params, again.reference.params)
    facts = read_manifest(kept.folder).extra
    assert facts["on_time_in_looks"] == [round(float(value), 4) for value in again.evaluations]
    assert (facts["price"], facts["tilt"], facts["num_updates"]) == (
        again.price,
        again.tilt,
        again.num_updates,
    )


@pytest.mark.slow
def test_references_are_named_for_their_days_and_the_stale_one_knows_only_day_0(kept):
    mine = kept.reference
    later = mine._replace(day=30)  # the same network with the tables of day 30
    scores = bench_truth(SMALL, [0, 30], BENCH, policies=("random",), references=[mine, later])
    named = {(score.policy, score.day): score for score in scores}
    assert list(named) == [
        ("random", 0),
        (REFERENCE, 0),
        ("random", 30),
        (REFERENCE, 30),
        (STALE_REFERENCE, 30),
    ]
    assert named[REFERENCE, 0].on_time.value > named["random", 0].on_time.value + 0.1
    assert not np.array_equal(named[REFERENCE, 30].per_day, named[STALE_REFERENCE, 30].per_day)


STILL = replace(
    SMALL,
    run=Law(),
    **{name: replace(getattr(SMALL, name), noise=Law()) for name in ("local", "cross_site", "wan")},
)
"""Nothing scatters, so what is predicted in the model is what comes."""
SHARED = replace(
    STILL, nodes=tuple(replace(node, discipline="ps", cpu_cores=1, memory_gib=512.0) for node in STILL.nodes)
)
NUM_STREAMS, NUM_STEPS = 3, 150


def promises(world):
    """A day begun under random decisions: what has the in-model value of every node before each, and what came of
    it."""
    cluster, today = cluster_of(world), conditions(world, 0)
    names = names_in(world, cluster)
    problem, response = revealing(
        placement(cluster, PlacementConfig(depth=32)),
        truth_response(world, cluster, 32, today, names, begin_s=30_000.0),
        reveal_in(world, today, names),
    )
    problem = problem._replace(
        observe=lambda state: (expect(world, names, today, state), state.books.request.agent)
    )

    def decide(key, _observed, legal):
        return jax.random.categorical(key, jnp.where(legal, 0.0, -jnp.inf), axis=0)

    played = jax.jit(
        lambda key: rollout(key, environment(problem, response), decide, NUM_STEPS, (NUM_STREAMS,))
    )(jax.random.key(1))
    found, agent = played.observation
    chosen = jax.tree.map(
        lambda leaf: np.take_along_axis(np.asarray(leaf), np.asarray(played.action), axis=1)[:, 0], found
    )
    return (
        chosen,
        np.asarray(agent)[:, 0],
        jax.tree.map(lambda leaf: np.asarray(leaf)[:, 0], played.outcome),
        played,
    )


@pytest.mark.slow
def test_where_nothing_scatters_every_start_and_finish_comes_as_promised():
    chosen, agent, outcome, played = promises(STILL)
    ran = np.isfinite(outcome.start_s)
    assert ran.sum() > 200
    assert (chosen.wait_s[ran] > 0.0).sum() > 30  # some queued
    arrival_s = np.asarray(played.decision_info.arrival_s)[:, 0]
    start_s = arrival_s + np.maximum(chosen.transfer_s, chosen.wait_s)
    np.testing.assert_allclose(outcome.start_s[ran], start_s[ran], atol=0.02)
    np.testing.assert_allclose(outcome.finish_s[ran], (start_s + chosen.run_s)[ran], atol=0.02)
    sure = chosen.accepts > 0.0
    on_time = outcome.finish_s - arrival_s <= np.asarray(played.decision_info.deadline_s)[:, 0]
    clear = ran & (
        np.abs(start_s + chosen.run_s - arrival_s - np.asarray(played.decision_info.deadline_s)[:, 0]) > 0.1
    )
    np.testing.assert_array_equal(on_time[clear & sure], (chosen.chance > 0.0)[clear & sure])
    own = conditions(STILL, 0).accepts[chosen.link, agent]
    np.testing.assert_allclose(chosen.accepts, own, rtol=1e-6)


@pytest.mark.slow
def test_shared_cores_keep_the_promise_to_whom_nobody_follows():
    """Whoever comes last finds none to follow: fates are played on as if nobody else came."""
    chosen, _, outcome, played = promises(SHARED)
    arrival_s = np.asarray(played.decision_info.arrival_s)[-1, 0]
    ran = np.isfinite(outcome.start_s[-1])
    promised_s = arrival_s + chosen.transfer_s[-1] + chosen.run_s[-1]
    assert ran.any()
    np.testing.assert_allclose(outcome.finish_s[-1][ran], promised_s[ran], rtol=1e-3)


@pytest.fixture(scope="module")
def seen():
    names, today = names_in(SMALL, cluster_of(SMALL)), conditions(SMALL, 0)
    system = reference._seeing(SMALL, PlacementConfig(depth=4), today)
    state = jax.jit(lambda key: system.reset(key, (64,)))(jax.random.key(1)).problem
    return jax.jit(lambda state: reference_view(SMALL, names, today, state))(state)


def test_what_the_reference_sees_is_finite_and_as_long_as_its_names(seen):
    assert seen.node.shape == (len(NODE_NUMBERS), len(SMALL.nodes), 1, 64)
    assert bool(jnp.isfinite(seen.node).all() & jnp.isfinite(seen.request).all())


def test_long_requests_are_kept_from_short_ones_by_the_nodes_places(seen):
    """One number tells equal nodes apart: long requests are pushed to one end of them, short ones to the other."""
    rank, separation = (
        np.asarray(seen.node[NODE_NUMBERS.index(name), :, 0]) for name in ("rank", "separation")
    )
    assert sorted(rank[:, 0].tolist()) == np.linspace(-1.0, 1.0, len(SMALL.nodes)).astype(np.float32).tolist()
    assert SMALL.nodes[int(np.argmax(rank[:, 0]))].speed == max(node.speed for node in SMALL.nodes)
    sizes = separation[np.argmax(rank[:, 0])]  # the logarithms of the requests' sizes
    assert sizes.min() < 0.0 < sizes.max()
    np.testing.assert_allclose(separation, rank * sizes, rtol=1e-5, atol=1e-6)


def test_a_budget_is_doubled_while_that_gains_and_no_further():
    def training(*evaluations):
        def train(total):
            return Selected(None, None, np.array(evaluations)[: total + 1])

        return train

    config = ReferenceConfig(num_updates=2, most_updates=8, updates_per_look=1)
    found, gain = reference._until_settled(training(0.5, 0.6, 0.7, 0.7, 0.7, 0.9, 0.9, 0.9, 0.9), config)
    # From 2 to 4 updates gained nothing: what came later is not seen
    assert (len(found.evaluations) - 1, gain) == (4, 0.0)
    found, gain = reference._until_settled(training(0.5, 0.6, 0.7, 0.7, 0.8, 0.8, 0.8, 0.8, 0.85), config)
    assert len(found.evaluations) - 1 == 8  # twice as many would be more than allowed
    assert gain == pytest.approx(0.05)
    with pytest.raises(ConfigError, match="at least as many"):
        ReferenceConfig(num_updates=20, most_updates=10)


def test_failures_avoided_and_shares_are_of_the_best_rule_of_the_day():
    means = {("expected_on_time", 0): 0.9, ("least_expected_response", 0): 0.92, ("twin", 0): 0.99}
    assert best_rule(means, 0) == "least_expected_response"
    assert best_rule(means, 7) is None
    mine, rule, ceiling = np.array([0.94, 0.96]), np.array([0.92, 0.92]), np.array([0.96, 0.98])
    np.testing.assert_allclose(failures_avoided(mine, rule), [0.25, 0.5])
    np.testing.assert_allclose(share_of_reference(mine, rule, ceiling), [0.5, 2 / 3])
    assert share_of_reference(mine, rule, rule + TOLERANCE / 2) is None  # no room to speak of


def test_a_table_whose_reference_is_beaten_with_confidence_is_refused():
    gaps = {
        ("ladder", 7): Estimate(0.01, 0.005, 0.015, 6),
        ("cql", 0): Estimate(0.01, -0.005, 0.025, 6),  # by luck
        ("iql", 0): Estimate(0.002, 0.001, 0.003, 6),  # by less than the reference is trained to
        (REFERENCE, 0): Estimate(0.0, 0.0, 0.0, 6),
    }
    found = {"beaten": beaten(gaps)}
    assert [(one["policy"], one["shift_days"]) for one in found["beaten"]] == [("ladder", 7)]
    with pytest.raises(BeatenReferenceError, match=r"no ceiling.*\n.*ladder after 7 days: \+0.0100"):
        refuse_beaten(found, "table2.json")
    assert beaten({case: gap for case, gap in gaps.items() if case[0] != "ladder"}) == []
    refuse_beaten({"beaten": []}, "table2.json")


@pytest.mark.slow
def test_references_of_other_worlds_and_impossible_ones_are_refused(kept, tmp_path):
    with pytest.raises(ConfigError, match="not in 'kmps'"):
        load_reference(kept.folder, preset("kmps"))
    with pytest.raises(ProductError):
        load_reference(tmp_path / "none", SMALL)
    with pytest.raises(ConfigError, match="day -1"):
        write_reference(SMALL, -1, TINY, tmp_path / "never")
    assert not (tmp_path / "never").exists()
    with pytest.raises(ConfigError, match="num_updates = 0"):
        replace(TINY, num_updates=0)


@pytest.mark.slow
def test_a_kept_reference_is_not_trained_again(kept, folder):
    again = kept_reference(SMALL, 0, TINY, folder)
    assert (kept.trained_now, again.trained_now) == (True, False)
    assert kept.folder == again.folder
    assert kept.train_s == again.train_s > 0.0
    jax.tree.map(np.testing.assert_array_equal, kept.reference.params, again.reference.params)


@pytest.mark.slow
def test_of_two_processes_that_train_the_same_reference_both_go_on(tmp_path, monkeypatch):
    params = reference.reference_network(SMALL).init(jax.random.key(0))
    done = ReferenceTraining(TruthReference("small", 0, params), 0.0, 0.0, np.ones(2), 2, 0.0)

    def faster(*_, **__):
        monkeypatch.setattr(reference, "train_reference", lambda *_, **__: done)
        kept_reference(SMALL, 0, TINY, tmp_path)
        return done

    monkeypatch.setattr(reference, "train_reference", faster)
    assert kept_reference(SMALL, 0, TINY, tmp_path).num_updates == 2


def test_an_reference_is_another_when_anything_it_is_made_from_changes(monkeypatch):
    sources = made_from(SMALL)
    others = [
        replace(SMALL, run=lognormal(0.3)),
        replace(SMALL, requests_per_day=2_501.0),
        replace(SMALL, drift=replace(SMALL.drift, migration=0.4)),
    ]
    assert len({made_from(world)["world"] for world in (SMALL, *others)}) == 4
    assert made_from(preset("small")) == sources
    monkeypatch.setattr("evaluation.reproduction.benches.reference_cache.FORM", reference.FORM + 1)
    assert made_from(SMALL) != sources


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder(REFERENCES) == tmp_path / "schedtwin" / "references"


@pytest.mark.slow
def test_the_command_shows_the_references_that_are_kept_or_leaves_them_out(kept, folder, monkeypatch, capsys):
    monkeypatch.setattr("evaluation.reproduction.benches.reference.ReferenceConfig", lambda: TINY)
    monkeypatch.setattr("evaluation.commands.bench.given", lambda config, arguments: BENCH)
    words = ["bench", "truth", "--preset", "small", "--days", "0", "--policies", "least-loaded"]
    assert cli.main([*words, "--references", str(folder), "--json", "--no-progress"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in told["rows"]] == ["least_loaded", REFERENCE]
    assert all(row["low"] <= row["on_time"] <= row["high"] for row in told["rows"])
    assert [check["worse"] for check in told["checks"]] == ["least_loaded"]
    (used,) = told["references"]
    assert (used["day"], used["trained_now"], used["folder"]) == (0, False, str(kept.folder))
    assert told["notes"] == []
    assert cli.main([*words, "--no-reference", "--no-progress"]) == 0
    assert "left out" in capsys.readouterr().out
