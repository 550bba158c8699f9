"""A running policy is judged by what it would see in production, though the judged system speaks another encoding."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from evaluation.judges.bundle_policies import OtherSystemError, encoding_of, load_bundle_policy
from evaluation.judges.views import answered, translation_of, with_views
from evaluation.pipeline.refresh.job import choose_running
from evaluation.simulator.logs import simulate
from logs_schema import Archive
from logs_schema.errors import ProductError
from offline_rl.placement_contract import setting_of
from offline_rl.runner import load
from offline_rl.runner.setting import parse_setting
from tests.evaluation.test_runner_on_preset import COLUMNS, told
from tests.offline_rl.bundles import BOUND, FREE, made_policy
from tests.offline_rl.retelling import follow_and_compare
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.contracts import Array
from twin.environment import environment
from twin.placement.bookkeeping import placement
from twin.placement.cold_starts import ColdStarts
from twin.placement.encode import cut_windows
from twin.placement.encoding import Encoding, fit_encoding
from twin.placement.history import answers_of_history
from twin.placement.log_windows import encode_days
from twin.placement.replay import replayed_answers
from twin.placement.responses import drawn_response
from twin.placement.run_filter import RunDynamics
from twin.placement.run_labels import RunLabels
from twin.placement.types import Observation
from twin.placement.windows import Windows, replayed_arrivals, select
from twin.rollout import rollout


def turned(encoding: Encoding) -> Encoding:
    """The same system with its nodes in reverse order."""
    cluster = encoding.cluster
    last = cluster.num_nodes - 1
    changed = replace(
        cluster,
        node_names=cluster.node_names[::-1],
        capacity=cluster.capacity[:, ::-1],
        unit_capacity=cluster.unit_capacity[:, ::-1],
        site_of_node=cluster.site_of_node[::-1],
        is_cloud=cluster.is_cloud[::-1],
        rules=cluster.rules[:, ::-1],
        run_ratio=cluster.run_ratio[:, ::-1],
        run_variance=cluster.run_variance[:, ::-1],
        dynamics=RunDynamics(),  # books learn a little earlier than programs
    )
    names = {name: last - node for name, node in encoding.node_of_name.items()}
    return replace(encoding, cluster=changed, node_of_name=names)


def coarse(encoding: Encoding) -> Encoding:
    """An encoding that knows fewer services and other scales, as one of other days might."""
    services = encoding.cluster.services[:3]
    cluster = replace(encoding.cluster, services=services, scenarios=encoding.cluster.scenarios[:2])
    cluster = replace(
        cluster,
        run_ratio=encoding.cluster.run_ratio[:3],
        run_variance=encoding.cluster.run_variance[:3],
        agents=(),
        acceptance_of_agent=np.ones((0, 3)),
        acceptance_of_scenario=encoding.cluster.acceptance_of_scenario[:2],
        dynamics=RunDynamics(),
    )
    problem = replace(encoding.problem, time_unit_s=3.0 * encoding.problem.time_unit_s, memory_s=40.0)
    return replace(encoding, cluster=cluster, run_of_service_s=encoding.run_of_service_s[:3], problem=problem)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    folder = tmp_path_factory.mktemp("views")
    simulate("small", 2, "mix", 0, folder / "log")
    return Archive(folder / "log")


def some(windows: Windows) -> Windows:
    return select(windows, np.linspace(0, windows.num_windows - 1, 4).astype(int))


@pytest.mark.slow
@pytest.mark.parametrize("network", [BOUND, FREE], ids=["bound", "free"])
def test_it_sees_and_decides_as_the_server_would(archive: Archive, tmp_path: Path, network: object) -> None:
    earlier, today = archive.days("requests")
    made_policy(tmp_path / "bundle", turned(fit_encoding(archive, [earlier])), network)
    judged = coarse(fit_encoding(archive, [today]))
    running = load_bundle_policy(tmp_path / "bundle", judged)
    windows = some(encode_days(archive, judged, [today], num_steps=48))
    beside = some(encode_days(archive, running.encoding, [today], num_steps=48))
    np.testing.assert_array_equal(windows.row, beside.row)
    assert np.any(windows.request.service != beside.request.service)
    answers = replayed_answers(windows, answers_of_history(windows, judged))
    response = drawn_response(judged.cluster, judged.problem.depth, replayed_arrivals(windows), answers)
    problem = with_views(
        placement(judged.cluster, judged.problem),
        {"other": running.encoding},
        {"other": translation_of(beside)},
    )
    observe = placement(running.encoding.cluster, running.encoding.problem).observe
    shown = problem._replace(observe=lambda books: observe(books.others["other"]))
    system = environment(shown, answered(response))

    def policy(_: Array, seen: Observation, legal: Array) -> Array:
        return running.decide(running.params, seen, legal)

    act = jax.jit(lambda key: rollout(key, system, policy, windows.num_steps, (windows.num_windows,)))
    simulated = jax.tree.map(np.asarray, act(jax.random.key(0)))
    rows = archive.read("requests", days=[today]).select(COLUMNS).to_pylist()
    first = int(windows.row[windows.row >= 0].min())
    chosen, _ = follow_and_compare(
        load(tmp_path / "bundle"),
        running.encoding,
        beside,
        simulated,
        lambda step, window: told(rows[windows.row[step, window] - first]),
    )
    assert len(chosen) > 1


def test_a_bundle_brings_its_labels_and_the_rooms_of_its_nodes() -> None:
    cluster = made_cluster()
    room, slowness = np.arange(1.0, 1.0 + cluster.num_nodes), np.linspace(0.5, 2.0, cluster.num_nodes)
    part = np.arange(1.0, 1.0 + len(cluster.services))[:, None] * room
    cold = ColdStarts(30.0, np.full(len(cluster.services), 5.0), room, slowness, part)
    of_scenario = np.full((len(cluster.services), len(cluster.scenarios)), 2.0)
    labels = RunLabels(of_scenario, np.full((len(cluster.services), len(cluster.queues)), 3.0))
    trained = replace(made_encoding(replace(cluster, cold=cold)), run_labels=labels)
    seen = encoding_of(parse_setting(setting_of(trained)), turned(made_encoding(cluster)))
    np.testing.assert_array_equal(seen.cluster.cold.room, room[::-1])
    np.testing.assert_array_equal(seen.cluster.cold.slowness, slowness[::-1])
    np.testing.assert_array_equal(seen.cluster.cold.part, part[:, ::-1])
    assert seen.run_labels.factor(1, 1, 0) == 6.0


def test_start_ups_are_those_of_the_encoding_that_sees_them() -> None:
    """The same system with its services in another order: the same run times, whoever looks."""
    cluster = made_cluster(num_services=4)
    cluster = replace(cluster, cold=ColdStarts(30.0, np.array([0.0, 5.0, 10.0, 20.0])))
    order = np.array([2, 0, 3, 1])
    other = replace(
        cluster,
        services=tuple(np.array(cluster.services)[order]),
        run_ratio=cluster.run_ratio[order],
        run_variance=cluster.run_variance[order],
        cold=ColdStarts(30.0, cluster.cold.startup_s[order]),
    )
    rows = made_rows(np.random.default_rng(0), cluster, 120)
    place = np.argsort(order).astype(np.int32)
    others = rows._replace(request=rows.request._replace(service=place[rows.request.service]))
    mine, theirs = made_encoding(cluster, view="full"), made_encoding(other, view="full")
    windows = cut_windows(rows, np.ones(120, bool), mine, num_steps=30)
    beside = cut_windows(others, np.ones(120, bool), theirs, num_steps=30)
    answers = replayed_answers(windows, answers_of_history(windows, mine))
    response = drawn_response(cluster, mine.problem.depth, replayed_arrivals(windows), answers)
    problem = with_views(
        placement(cluster, mine.problem), {"other": theirs}, {"other": translation_of(beside)}
    )

    @jax.jit
    def looked_at(key: Array) -> tuple:
        books = problem.start(response.init(key, (windows.num_windows,))[1])
        seen = placement(other, theirs.problem).observe(books.others["other"]).node
        return problem.observe(books).node, seen, unknowing.observe(books.own._replace(last_end_s=None)).node

    plain = replace(cluster, cold=None)
    unknowing = placement(plain, mine.problem)
    own, seen, blind = map(np.asarray, looked_at(jax.random.key(0)))
    np.testing.assert_allclose(own, seen, rtol=1e-4, atol=1e-5)
    assert np.abs(own - blind).max() > 0.1


@pytest.mark.slow
def test_it_is_shown_the_week_and_other_sites_as_in_training(archive: Archive, tmp_path: Path) -> None:
    """Whatever the judged encoding shows: weights of what was never shown are those that training began with."""
    judged = fit_encoding(archive, archive.days("requests"))
    for knows_week, view in ((False, "full"), (True, "summary")):
        cluster = replace(judged.cluster, knows_week=knows_week)
        trained = replace(judged, cluster=cluster, problem=replace(judged.problem, view=view))
        made_policy(tmp_path / view, trained, BOUND)
        shown = load_bundle_policy(tmp_path / view, judged).encoding
        assert (shown.cluster.knows_week, shown.problem.view) == (knows_week, view)


@pytest.mark.slow
def test_a_policy_of_other_nodes_is_refused_by_name(archive: Archive, tmp_path: Path) -> None:
    judged = fit_encoding(archive, archive.days("requests"))
    gone = judged.cluster.node_names[0]
    names = ("newcomer", *judged.cluster.node_names[1:])
    other = replace(judged, cluster=replace(judged.cluster, node_names=names))
    made_policy(tmp_path / "bound", other, BOUND)
    made_policy(tmp_path / "free", other, FREE)
    with pytest.raises(OtherSystemError, match=gone):
        load_bundle_policy(tmp_path / "bound", judged)
    with pytest.raises(OtherSystemError, match="newcomer"):
        load_bundle_policy(tmp_path / "bound", judged)
    assert load_bundle_policy(tmp_path / "free", judged).order == tuple(range(len(names)))
    made_policy(tmp_path / "candidate" / "bundle", judged, BOUND)
    products = {"candidate": tmp_path / "candidate", "twin": tmp_path / "twin"}
    parts = SimpleNamespace(refuse_other=lambda running, _: load_bundle_policy(running, judged))
    running, (note,) = choose_running(tmp_path / "bound", tmp_path, products, parts)  # type: ignore[arg-type]
    assert running is None
    assert note.startswith(
        "the running policy is not compared with: the bundle was trained for other nodes (removed"
    )
    (tmp_path / "bound" / "policy.npz").write_bytes(b"spoiled")
    with pytest.raises(ProductError):
        load_bundle_policy(tmp_path / "bound", judged)
