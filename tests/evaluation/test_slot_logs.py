"""Logs of slot mode: what they tell is possible, a twin fitted to them finds its laws, and what lacks is named."""

import datetime as dt
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.problems.orchestration.kit import ORCHESTRATION_KIT
from evaluation.problems.orchestration.simulating import SlotLogConfig, SlotLogReport, simulate_slots
from evaluation.simulator.logs import simulate
from evaluation.simulator.slots import SlotConfig, time_scaled
from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.forecast import true_forecast
from evaluation.simulator.slots.instance import Instance, deployed_on
from logs_schema import Archive
from logs_schema.errors import ArchiveError, ConfigError
from tests.evaluation.slot_runs import random_policy, small_kais
from twin.contracts import Array, EnvironmentState, PyTree
from twin.environment import environment
from twin.orchestration.behaviour import fit_clone
from twin.orchestration.chance import SlotAnswer
from twin.orchestration.encode import SlotRows, read_replicas, read_rows
from twin.orchestration.fit import ChanceFitConfig, FittedCluster, fit_orchestration, fit_rates
from twin.orchestration.frame_config import FrameConfig
from twin.orchestration.learned import learned_chance, learned_forecast
from twin.orchestration.mechanics import slot_response
from twin.orchestration.persistence import load_fitted, save_fitted
from twin.orchestration.slots import SLOT_NODE_FEATURES, slot_problem
from twin.placement.run_filter import RunDynamics
from twin.placement.types import COMPLETED, DROPPED, Cluster, Requests

SLOTS = SlotConfig(node_places=6, queue_places=8, slots_per_frame=20, image_mib_per_gib=20.0)
LOG = SlotLogConfig(slots=SLOTS, frames=FrameConfig(samples_per_frame=5))
WORLD = small_kais(2, 2)


class Logged(NamedTuple):
    """A log of two days, what was said of it, and the twin of its first day."""

    archive: Archive
    report: SlotLogReport
    fitted: FittedCluster
    rows: SlotRows
    truth: Instance


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Logged:
    out = tmp_path_factory.mktemp("slots") / "log"
    report = simulate_slots(WORLD, 2, LOG, 1, out)
    archive = Archive(out)
    days = archive.days("requests")
    fitted = fit_orchestration(archive, days)
    truth = deployed_on(time_scaled(WORLD, SLOTS), SLOTS, 0, cluster=fitted.edge.cluster)
    return Logged(archive, report, fitted, read_rows(archive, days, fitted.edge.cluster), truth)


def test_a_log_says_what_can_be(logged: Logged) -> None:
    rows, edge = logged.rows, logged.fitted.edge
    assert len(rows.day) == logged.report.num_requests > 2000
    assert rows.on_time.sum() == logged.report.num_on_time
    sent, served = rows.node >= 0, np.isfinite(rows.start_s)
    assert (~sent).sum() == logged.report.num_never_sent
    assert (rows.decided_s[sent] >= rows.arrival_s[sent]).all()
    assert (rows.start_s[served] >= rows.decided_s[served] + SLOTS.slot_s - 1e-3).all()
    assert set(rows.status[~sent]) <= {DROPPED}
    turns = np.stack([rows.day, rows.site, np.rint(rows.decided_s / SLOTS.slot_s)])[:, sent]
    assert np.unique(turns, axis=1).shape[1] == sent.sum()  # an access point sends one request a slot
    for node in range(edge.num_nodes):
        mine = served & (rows.node == node) & (rows.day == 0) & np.isfinite(rows.finish_s)
        running = rows.start_s[mine][:, None] + 1e-3
        busy = (running > rows.start_s[mine]) & (running < rows.finish_s[mine] - 1e-3)
        assert busy.sum(axis=1).max() <= edge.cores[node]


def test_nothing_of_it_lands_in_quarantine(logged: Logged) -> None:
    for table in ("requests", "replicas", "node_samples"):
        assert logged.archive.num_rows(table) > 0
        assert not logged.archive.quarantined(table)


def test_the_description_of_the_cluster_is_that_of_the_world(logged: Logged) -> None:
    edge, public = logged.fitted.edge, logged.truth.public
    np.testing.assert_array_equal(edge.replicas, public.replicas)
    np.testing.assert_array_equal(edge.cores, public.cores)
    np.testing.assert_allclose(edge.memory_gib, public.memory_gib)
    np.testing.assert_allclose(edge.replica_gib[1:], public.replica_gib[1:], rtol=1e-5)
    assert edge.config == SLOTS


def test_a_fit_finds_the_laws_of_the_world(logged: Logged) -> None:
    """Runs are cut by deadlines, so that a mean of the completed ones would be too short."""
    learned, true = learned_forecast(logged.fitted.edge, logged.fitted.tables), true_forecast(logged.truth)
    assert learned.rate_per_s.sum(axis=(1, 2)).mean() == pytest.approx(
        true.rate_per_s.sum(axis=(1, 2)).mean(), rel=0.1
    )
    rows = logged.rows
    seen = np.zeros(true.run_s.shape)
    np.add.at(seen, (rows.service[rows.node >= 0], rows.node[rows.node >= 0]), 1.0)
    often = seen >= 60
    ratio = np.log(learned.run_s[often] / true.run_s[often])
    assert often.sum() > 10
    assert abs(ratio.mean()) < 0.05
    assert ratio.std() < 0.12
    ended = (rows.status == COMPLETED) & (rows.node >= 0)
    naive = (rows.finish_s - rows.start_s)[ended] / rows.requested_run_s[ended]
    expected = (
        true.run_s[rows.service[ended], rows.node[ended]] / logged.truth.public.work_s[rows.service[ended]]
    )
    assert abs(np.log(naive.mean() / expected.mean())) > abs(ratio.mean())


@pytest.mark.parametrize("day", [0, 1])
def test_a_day_that_is_logged_in_part_does_not_lower_the_rates_of_its_other_hours(
    logged: Logged, day: int
) -> None:
    """The first day begins at half, or the last one ends there; the other day has all hours."""
    rows, edge, day_s = logged.rows, logged.fitted.edge, float(logged.fitted.tables.day_s)
    later = rows.arrival_s >= 0.5 * day_s
    kept = (rows.day != day) | (later if day == 0 else ~later)
    part = SlotRows(*(leaf[..., kept] for leaf in rows))
    found, alone = (
        fit_rates(edge, some, day_s, number, ChanceFitConfig()).mean(axis=0).sum()
        for some, number in ((part, 2), (SlotRows(*(leaf[..., rows.day != day] for leaf in rows)), 1))
    )
    whole = logged.fitted.tables.rate_per_s.mean(axis=0).sum()
    assert found == pytest.approx(0.5 * (whole + alone), rel=0.05)
    assert fit_rates(edge, rows, day_s, 2, ChanceFitConfig()).mean(axis=0).sum() == pytest.approx(
        whole, rel=1e-6
    )


def test_hours_that_neither_of_two_days_shows_have_rates_between_those_before_and_after(
    logged: Logged,
) -> None:
    """A log of one night: the first day begins at three quarters, the last one ends at a quarter."""
    rows, edge, day_s = logged.rows, logged.fitted.edge, float(logged.fitted.tables.day_s)
    kept = np.where(rows.day == 0, rows.arrival_s >= 0.75 * day_s, rows.arrival_s < 0.25 * day_s)
    part = SlotRows(*(leaf[..., kept] for leaf in rows))
    per_s = fit_rates(edge, part, day_s, 2, ChanceFitConfig()).sum(axis=(1, 2))
    quarters = per_s.reshape(4, -1)
    assert np.isfinite(per_s).all()
    np.testing.assert_allclose(
        quarters[1:3].mean(), 0.5 * (quarters[0].mean() + quarters[3].mean()), rtol=0.5
    )


def test_replicas_on_nodes_that_the_cluster_does_not_know_are_those_of_no_other(logged: Logged) -> None:
    days, cluster = logged.archive.days("requests"), logged.fitted.edge.cluster
    whole = read_replicas(logged.archive, days, cluster)
    fewer = replace(cluster, node_names=("gone", *cluster.node_names[1:]))
    found = read_replicas(logged.archive, days, fewer)
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(one, other[whole.node > 0])


def test_a_chance_with_levels_brings_more_of_some_services(logged: Logged) -> None:
    edge, tables = logged.fitted.edge, logged.fitted.tables
    key, streams, level = jax.random.key(0), (2000,), np.ones(edge.num_services, np.float32)

    def first(level: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        wide = None if level is None else jnp.asarray(level)[:, None]
        chance = learned_chance(edge, tables, begin_s=0.5 * float(tables.day_s), level=wide)
        arrival_s = chance.first_s(key, streams)
        request, _ = chance.arrival(chance.numbers(key, streams), 0, arrival_s)
        return np.asarray(arrival_s), np.asarray(request.service)

    usual_s, usual = first(None)
    same_s, same = first(level)
    np.testing.assert_allclose(same_s, usual_s, rtol=1e-5)
    assert np.mean(same == usual) > 0.999
    level[1] = 4.0
    more_s, more = first(level)
    share = np.mean(usual == 1)
    assert np.mean(more == 1) == pytest.approx(4.0 * share / (1.0 + 3.0 * share), abs=0.03)
    assert np.median(more_s / usual_s) == pytest.approx(1.0 / (1.0 + 3.0 * share), rel=0.15)


@pytest.mark.slow
def test_what_a_dispatcher_is_shown_follows_the_runs_that_end(logged: Logged) -> None:
    """Where runs take four times as long as in the log, the run time shown rises towards that."""
    chance, decide = true_chance(logged.truth), random_policy(logged.truth)
    row = [feature.name for feature in SLOT_NODE_FEATURES].index("usual_run")

    def slower(drawn: PyTree, request: Requests, node: Array) -> SlotAnswer:
        answer = chance.answer(drawn, request, node)
        return answer._replace(run_s=4.0 * answer.run_s)

    def shown_s(cluster: Cluster) -> np.ndarray:
        case = logged.truth.public._replace(cluster=cluster)
        system = environment(slot_problem(case), slot_response(case, chance._replace(answer=slower)))

        def slot(state: EnvironmentState, key: Array) -> tuple[EnvironmentState, None]:
            return system.step(key, state, decide(key, system.problem.legal(state.problem)))[0], None

        @jax.jit
        def run(key: Array) -> Array:
            state, _ = jax.lax.scan(slot, system.reset(key, (8,)), jax.random.split(key, 1500))
            return jnp.expm1(system.problem.observe(state.problem).node[row])

        return np.asarray(run(jax.random.key(3)))

    cluster = logged.fitted.edge.cluster
    as_logged_s = shown_s(replace(cluster, dynamics=RunDynamics()))
    assert 1.4 < shown_s(cluster).mean() / as_logged_s.mean() < 4.5


def test_how_long_images_take_is_seen_in_replicas_and_samples(logged: Logged) -> None:
    edge, public = logged.fitted.edge, logged.truth.public
    off_s = np.abs(edge.pull_s - public.pull_s)[1:][:, ~edge.cluster.is_cloud]
    assert np.median(off_s) <= LOG.sample_slots * SLOTS.slot_s


def test_a_twin_is_kept_whole(logged: Logged, tmp_path: Path) -> None:
    save_fitted(tmp_path, logged.fitted)
    again = load_fitted(tmp_path)
    assert again.edge.config == logged.fitted.edge.config
    assert again.frames == logged.fitted.frames
    for one, two in zip(again.tables, logged.fitted.tables, strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(again.edge.cluster.run_ratio, logged.fitted.edge.cluster.run_ratio)


@pytest.mark.slow
def test_what_a_log_lacks_is_named(tmp_path: Path) -> None:
    simulate("small", 1, "mix", 0, tmp_path / "log")
    archive = Archive(tmp_path / "log")
    lacking = ORCHESTRATION_KIT.lacking(archive)
    assert "table replicas is empty" in lacking
    assert "node_samples" in lacking
    with pytest.raises(ArchiveError, match="replicas"):
        fit_orchestration(archive, [dt.date(2024, 1, 1)])


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (SlotLogConfig(dispatch="nobody"), "dispatch"),
        (SlotLogConfig(orchestration="nobody"), "orchestration"),
        (SlotLogConfig(explored=1.5), "explored"),
    ],
)
def test_who_cannot_write_a_log_is_refused(config: SlotLogConfig, named: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=named):
        simulate_slots(WORLD, 1, config, 0, tmp_path / "log")


def test_who_wrote_a_log_is_cloned(logged: Logged) -> None:
    """Thirty per cent went anywhere, the others where least was waiting for each core."""
    edge = logged.fitted.edge
    replicas = read_replicas(logged.archive, logged.archive.days("requests"), edge.cluster)
    clone = fit_clone(edge, logged.rows, replicas)
    assert 0.15 < clone.explored < 0.6
    assert (clone.weights[:2] < -0.5).all()  # load repels, at home and elsewhere
