"""The oracle: trained in the world itself, kept as a product, and scored beside the baselines."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation import cli
from evaluation.benches import oracle
from evaluation.benches.oracle import OracleConfig, load_oracle, train_oracle, write_oracle
from evaluation.benches.oracle_cache import cache_folder, kept_oracle, made_from
from evaluation.benches.oracle_view import NODE_NUMBERS, expect, oracle_view
from evaluation.benches.truth_bench import DOUBLED_ORACLE, ORACLE, STALE_ORACLE, TruthBenchConfig, bench_truth
from evaluation.simulator.conditions import conditions
from evaluation.simulator.laws import lognormal
from evaluation.simulator.names import names_in
from evaluation.simulator.presets import preset
from evaluation.simulator.truth import truth_of
from evaluation.simulator.vocabulary import cluster_of
from logs_schema.errors import ConfigError, ProductError
from logs_schema.product import read_manifest
from twin.placement.bookkeeping import PlacementConfig

SMALL = preset("small")
TINY = OracleConfig(num_updates=4, requests_per_update=800, least_steps=100)
BENCH = TruthBenchConfig(num_seeds=4, days_per_seed=2, num_steps=200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("oracles")


@pytest.fixture(scope="module")
def kept(folder):
    return kept_oracle(SMALL, 0, TINY, folder)


@pytest.mark.slow
def test_the_same_seed_trains_the_same_oracle_and_the_product_keeps_it(kept):
    again, curve = train_oracle(SMALL, 0, TINY)
    assert (kept.oracle.preset, kept.oracle.day) == ("small", 0)
    jax.tree.map(np.testing.assert_array_equal, kept.oracle.params, again.params)
    told = read_manifest(kept.folder).extra["on_time_in_training"]
    assert told == [round(float(value), 4) for value in curve]
    assert len(curve) == TINY.num_updates


@pytest.mark.slow
def test_oracles_are_named_for_their_days_and_the_stale_one_knows_only_day_0(kept):
    mine = kept.oracle
    later = mine._replace(day=30)  # the same network with the tables of day 30
    scores = bench_truth(SMALL, [0, 30], BENCH, policies=("random",), oracles=[mine, later], doubled=[later])
    named = {(score.policy, score.day): score for score in scores}
    assert list(named) == [
        ("random", 0), (ORACLE, 0), ("random", 30), (ORACLE, 30), (DOUBLED_ORACLE, 30), (STALE_ORACLE, 30)
    ]  # fmt: skip
    assert named[ORACLE, 0].on_time.value > named["random", 0].on_time.value + 0.1
    np.testing.assert_array_equal(named[ORACLE, 30].per_day, named[DOUBLED_ORACLE, 30].per_day)
    assert not np.array_equal(named[ORACLE, 30].per_day, named[STALE_ORACLE, 30].per_day)


@pytest.fixture(scope="module")
def first():
    """The state of an empty world with a request in each of three streams."""
    cluster = cluster_of(SMALL)
    system = truth_of(SMALL, cluster, PlacementConfig(depth=4), 0.0)
    return jax.jit(lambda key: system.reset(key, (3,)))(jax.random.key(1)).problem


@jax.jit
def promised(state):
    return expect(SMALL, names_in(SMALL, cluster_of(SMALL)), conditions(SMALL, 0), state)


def test_an_empty_world_promises_way_and_run_by_the_tables(first):
    today, found = conditions(SMALL, 0), promised(first)
    request = jax.tree.map(np.asarray, first.request)
    for stream in range(3):
        site, service = request.site[0, stream], request.service[0, stream] - 1
        for node, machine in enumerate(SMALL.nodes):
            link = today.link[site, node]
            run_s = request.expected_run_s[0, stream] / (machine.speed * today.affinity[service, node])
            way_s = today.latency_s[link] + request.input_mib[0, stream] * today.s_per_mib[link]
            assert float(found.run_s[node, stream]) == pytest.approx(run_s, rel=1e-5)
            assert float(found.transfer_s[node, stream]) == pytest.approx(way_s, rel=1e-5)
            assert float(found.wait_s[node, stream]) == 0.0
            scenario = SMALL.scenarios[request.scenario[0, stream] - 1]
            accepts = (1.0, scenario.accepts_other_site, scenario.accepts_cloud)[link]
            slack = (request.deadline_s[0, stream] - way_s) / run_s
            exact = np.mean(slack >= np.asarray(SMALL.run.quantile(jnp.linspace(0.0005, 0.9995, 1000))))
            assert float(found.chance[node, stream]) == pytest.approx(accepts * exact, abs=0.03)


def test_a_full_node_promises_a_wait_and_others_none(first):
    today = conditions(SMALL, 0)
    node, cores = 1, SMALL.nodes[1].cpu_cores
    busy = jax.tree.map(np.asarray, first)
    table = busy.in_flight
    here = (np.arange(len(SMALL.nodes)) == node)[:, None, None] & (np.arange(4) < cores)[None, :, None]
    table = table._replace(
        decision=np.where(here, 0, table.decision),
        start_s=np.where(here, busy.clock_s[None, None] - 2.0, np.inf).astype(np.float32),
        expected_run_s=np.broadcast_to(np.where(here, 50.0, 0.0), table.decision.shape).astype(np.float32),
        service=np.broadcast_to(np.where(here, 1, 0), table.decision.shape).astype(np.int32),
    )
    found = promised(busy._replace(in_flight=table))
    run_s = 50.0 / (SMALL.nodes[node].speed * today.affinity[0, node])
    np.testing.assert_allclose(found.busy[node], 1.0)
    np.testing.assert_allclose(found.wait_s[node], (run_s - 2.0) / cores, rtol=1e-5)
    assert np.abs(np.delete(found.wait_s, node, axis=0)).max() == 0.0


def test_what_the_oracle_sees_is_finite_and_as_long_as_its_names(first):
    names = names_in(SMALL, cluster_of(SMALL))
    seen = jax.jit(lambda state: oracle_view(SMALL, names, conditions(SMALL, 0), state))(first)
    assert seen.node.shape == (len(NODE_NUMBERS), len(SMALL.nodes), 1, 3)
    assert bool(jnp.isfinite(seen.node).all() & jnp.isfinite(seen.request).all())


@pytest.mark.slow
def test_oracles_of_other_worlds_and_impossible_ones_are_refused(kept, tmp_path):
    with pytest.raises(ConfigError, match="not in 'kmps'"):
        load_oracle(kept.folder, preset("kmps"))
    with pytest.raises(ProductError):
        load_oracle(tmp_path / "none", SMALL)
    with pytest.raises(ConfigError, match="day -1"):
        write_oracle(SMALL, -1, TINY, tmp_path / "never")
    assert not (tmp_path / "never").exists()
    with pytest.raises(ConfigError, match="positive"):
        replace(TINY, num_updates=0)


@pytest.mark.slow
def test_a_kept_oracle_is_not_trained_again(kept, folder):
    again = kept_oracle(SMALL, 0, TINY, folder)
    assert (kept.trained_now, again.trained_now) == (True, False)
    assert kept.folder == again.folder
    assert kept.train_s == again.train_s > 0.0
    jax.tree.map(np.testing.assert_array_equal, kept.oracle.params, again.oracle.params)


def test_an_oracle_is_another_when_anything_it_is_made_from_changes(monkeypatch):
    sources = made_from(SMALL)
    others = [
        replace(SMALL, run=lognormal(0.3)),
        replace(SMALL, requests_per_day=2_501.0),
        replace(SMALL, drift=replace(SMALL.drift, migration=0.4)),
    ]
    assert len({made_from(world)["world"] for world in (SMALL, *others)}) == 4
    assert made_from(preset("small")) == sources
    monkeypatch.setattr("evaluation.benches.oracle_cache.FORM", oracle.FORM + 1)
    assert made_from(SMALL) != sources


def test_the_cache_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "schedtwin" / "oracles"


@pytest.mark.slow
def test_the_command_shows_the_oracles_that_are_kept_or_leaves_them_out(kept, folder, monkeypatch, capsys):
    monkeypatch.setattr("evaluation.benches.oracle.OracleConfig", lambda: TINY)
    monkeypatch.setattr("evaluation.benches.truth_bench.TruthBenchConfig", lambda num_seeds: BENCH)
    words = ["bench", "truth", "--preset", "small", "--days", "0", "--policies", "least-loaded"]
    assert cli.main([*words, "--oracles", str(folder), "--json", "--no-progress"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["policy"] for row in told["rows"]] == ["least_loaded", ORACLE]
    assert all(row["low"] <= row["on_time"] <= row["high"] for row in told["rows"])
    assert [check["worse"] for check in told["checks"]] == ["least_loaded"]
    (used,) = told["oracles"]
    assert (used["day"], used["trained_now"], used["folder"]) == (0, False, str(kept.folder))
    assert told["notes"] == []
    assert cli.main([*words, "--no-oracle", "--no-progress"]) == 0
    assert "left out" in capsys.readouterr().out
