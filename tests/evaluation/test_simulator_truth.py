"""Simulated logs as archives, and the truth as an environment in the vocabulary of an encoded log."""

import datetime as dt
import json
import shutil
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

from evaluation.commands import cli
from evaluation.simulator.behaviour import behaviour
from evaluation.simulator.history import play
from evaluation.simulator.laws import exponential
from evaluation.simulator.logs import DAYS_AT_ONCE, FIRST_DAY, day_of, on_time, simulate, truth_folder
from evaluation.simulator.names import names_in
from evaluation.simulator.presets import preset
from evaluation.simulator.truth import ground_truth
from logs_schema import Archive
from logs_schema.check import check_archive
from logs_schema.errors import ArchiveError, ConfigError
from tests.evaluation.worlds import interval, queue, simulated, truth_of, uniform_policy
from tests.twin.made import reordered
from twin.placement.bookkeeping import PlacementConfig
from twin.placement.encode import read_rows
from twin.placement.encoding import fit_encoding
from twin.placement.features import NODE_FEATURES
from twin.placement.service_times import without_history
from twin.placement.types import Cluster
from twin.rollout import follow, rollout

NUM_DAYS = 2
SMALL = preset("small")


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    out = tmp_path_factory.mktemp("simulated") / "log"
    simulate("small", NUM_DAYS, "mix", 0, out)
    return Archive(out)


@pytest.fixture(scope="module")
def encoding(archive):
    return fit_encoding(archive, archive.days("requests"))


def test_a_simulated_log_is_a_clean_usable_archive_with_its_truth_beside_it(archive):
    report = check_archive(archive.path)
    assert report.usable
    tables = report.to_json()["tables"]
    assert tables["nodes"]["rows"] == len(SMALL.nodes)
    assert tables["nodes"]["quarantined"] == tables["requests"]["quarantined"] == 0
    assert abs(tables["requests"]["rows"] - NUM_DAYS * SMALL.requests_per_day) < 5 * np.sqrt(
        NUM_DAYS * SMALL.requests_per_day
    )
    rows = archive.read("requests")
    assert rows["propensity"].null_count == len(rows)
    secret = pq.read_table(truth_folder(archive.path) / "propensities.parquet")
    assert sorted(secret["request_id"].to_pylist()) == sorted(rows["request_id"].to_pylist())
    assert archive.facts["ground_truth"] == {
        "preset": "small",
        "seed": 0,
        "behaviour": "mix",
        "first_day": "2024-01-01",
        "num_days": NUM_DAYS,
    }


@pytest.mark.slow
def test_an_archive_holds_the_history_that_was_played(archive, encoding):
    played = day_of(play(SMALL, behaviour("mix"), range(DAYS_AT_ONCE), seed=0), 1)
    day = archive.days("requests")[1]
    rows, wanted = read_rows(archive, encoding, [day], known_until_s=np.inf)
    midnight_s = (day - dt.date(1970, 1, 1)).days * 86_400.0
    names = names_in(SMALL, encoding.cluster)
    np.testing.assert_allclose(rows.arrival_s[wanted] - midnight_s, played.arrival_s, atol=1e-5)
    np.testing.assert_allclose(rows.finish_s[wanted] - midnight_s, played.fate.finish_s, atol=1e-5)
    np.testing.assert_array_equal(names.world_node[rows.node[wanted]], played.node)
    request = jax.tree.map(lambda leaf: leaf[..., wanted], rows.request)
    np.testing.assert_array_equal(request.service, names.service[played.request.service])
    np.testing.assert_array_equal(request.site, names.site[played.request.site])
    for name in ("expected_run_s", "deadline_s", "input_mib", "day_fraction"):
        one, two = getattr(request, name), getattr(played.request, name)
        np.testing.assert_allclose(one, two, rtol=1e-5, err_msg=name)
    np.testing.assert_allclose(request.demand, played.request.demand.T, rtol=1e-6)


def test_same_arguments_same_archive_and_none_is_overwritten_unasked(archive, tmp_path):
    out = tmp_path / "log"
    simulate("small", NUM_DAYS, "mix", 0, out)
    assert Archive(out).content_hash == archive.content_hash
    with pytest.raises(ArchiveError):
        simulate("small", NUM_DAYS, "mix", 1, out)
    simulate("small", 1, "mix", 1, out, replace=True)
    assert Archive(out).days("requests") == [FIRST_DAY]
    shutil.rmtree(out)  # as after a kill between the truth and its log
    simulate("small", NUM_DAYS, "mix", 0, out)
    assert Archive(out).content_hash == archive.content_hash


def test_the_command_simulates(tmp_path, capsys):
    out = tmp_path / "log"
    words = ["simulate", "--days", "1", "--behaviour", "least-loaded", "--out", str(out), "--json"]
    assert cli.main([*words, "--no-progress"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["num_requests"] == Archive(out).num_rows("requests")
    assert told["behaviour"] == "fewest_per_core"  # the name it had before is understood
    assert cli.main(["simulate", "--days", "0", "--out", str(tmp_path / "none"), "--no-progress"]) == 2
    assert "number of days is 0" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.slow  # the quick one: `test_truth_bench`, whole days
def test_a_policy_earns_in_the_environment_what_it_earns_in_the_history(archive, encoding):
    num_steps, num_streams = 500, 16
    config = replace(encoding.problem, depth=64, reward="on_time")
    truth = truth_of(SMALL, encoding.cluster, config, 0.0)
    run = jax.jit(lambda key: rollout(key, truth, uniform_policy, num_steps, (num_streams,)))
    trajectory = run(jax.random.key(3))
    assert bool(jnp.all(trajectory.settled & trajectory.active))
    assert not bool(jnp.any(trajectory.illegal))
    mean, error = interval(np.asarray(trajectory.reward[:, 0]).mean(axis=0))
    rows = simulated(SMALL, "random", num_streams=num_streams)
    expected, other_error = interval(
        np.array([on_time(day_of(rows, column))[:num_steps].mean() for column in range(num_streams)])
    )
    assert abs(mean - expected) < 3.5 * np.hypot(error, other_error)
    assert error < 0.03


def one_node_cluster(world):
    capacity = np.array([[float(world.nodes[0].cpu_cores)], [1.0], [0.0]])
    return Cluster(
        node_names=("node",), capacity=capacity, unit_capacity=capacity, site_of_node=np.array([0]),
        is_cloud=np.array([False]), sites=("here",), scenarios=("unknown", "default"),
        services=("unknown", "only"), queues=("unknown",), rules=np.ones((1, 1), bool),
        **without_history(2, 1, 2),
    )  # fmt: skip


@pytest.mark.slow  # the quick ones: `test_simulator_littles_law`, and `test_simulator_queues` without books
def test_arrivals_see_as_many_in_the_books_as_theory_says():
    """In M/M/1, Poisson arrivals see load / (1 - load) requests on average; the books must too."""
    load, num_steps, warm_up = 0.5, 1_500, 100
    world = queue(1, load, exponential())
    config = PlacementConfig(depth=40, num_seats=1)
    truth = truth_of(world, one_node_cluster(world), config, 0.0)
    run = jax.jit(lambda key: rollout(key, truth, uniform_policy, num_steps, (24,)).observation.node)
    names = [feature.name for feature in NODE_FEATURES]
    node = np.asarray(run(jax.random.key(0)))[warm_up:, :, 0, 0]
    counts = np.expm1(node[:, [names.index("num_running"), names.index("num_waiting")]]).sum(axis=1)
    mean, error = interval(counts.mean(axis=0))
    assert error < 0.05
    assert abs(mean - load / (1 - load)) < 3 * error


@pytest.mark.slow
def test_the_order_of_a_vocabulary_changes_no_outcome(archive, encoding):
    order = np.array([3, 0, 4, 2, 1])
    services = encoding.cluster.services
    other = replace(reordered(encoding.cluster, order), services=(services[0], *reversed(services[1:])))
    actions = np.random.default_rng(0).integers(0, len(order), (60, 1))
    outcomes = []
    for cluster, taken in ((encoding.cluster, actions), (other, np.argsort(order)[actions])):
        truth = truth_of(SMALL, cluster, replace(encoding.problem, depth=40), 0.0)
        run = jax.jit(partial(follow, environment=truth, actions=jnp.asarray(taken, jnp.int32)))
        outcomes.append(run(jax.random.key(1)))
    for name in ("start_s", "finish_s", "status"):
        one, two = (np.asarray(getattr(trajectory.outcome, name)) for trajectory in outcomes)
        np.testing.assert_array_equal(one, two)
    assert np.isfinite(np.asarray(outcomes[0].outcome.finish_s)).sum() > 30


@pytest.mark.slow  # the quick one: `test_truth_bench`, to the last request of a day
def test_an_episode_ends_with_its_day(archive, encoding):
    config = replace(encoding.problem, depth=40)
    begin_s = SMALL.day_s - 600.0
    truth = truth_of(SMALL, encoding.cluster, config, 0.0, begin_s=begin_s)
    trajectory = jax.jit(lambda key: rollout(key, truth, uniform_policy, 60, (3,)))(jax.random.key(0))
    assert bool(jnp.all(trajectory.done[-1]))
    last_s = jnp.max(jnp.where(trajectory.active, trajectory.decision_info.arrival_s, 0.0))
    assert 300.0 < float(last_s) < 600.0


def test_what_has_no_truth_is_refused(encoding):
    cluster, config = encoding.cluster, encoding.problem
    with pytest.raises(ConfigError, match="no ground truth"):
        ground_truth({})
    with pytest.raises(ConfigError, match=r"service.*service-05"):
        truth_of(SMALL, replace(cluster, services=cluster.services[:-1]), config, 0.0)
