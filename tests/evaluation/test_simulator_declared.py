"""Declared work that is only a limit: its mean, what it says of the size, round values, and limits that end runs or
kill them."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.simulator.arrivals import needed, request_at
from evaluation.simulator.conditions import conditions
from evaluation.simulator.laws import Law, constant, exponential, lognormal
from evaluation.simulator.logs import _notes
from evaluation.simulator.mechanics import begin_unfolding, mechanics_of, unfolding
from evaluation.simulator.names import names_in
from evaluation.simulator.options import Declared
from evaluation.simulator.presets import preset
from evaluation.simulator.revealing import reveal_in
from evaluation.simulator.stations import GONE, SERVED, WAITING
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.world import validate
from logs_schema.errors import ConfigError
from tests.evaluation.worlds import ends_by_hand, queue, simulated
from twin.placement.run_habits import RunHabits, expected_s_of
from twin.placement.timeouts import Timeouts
from twin.placement.types import FAILED

SIZE = 0.8


def drawn(declared, *, size=None, run=None, num_agents=1):
    """Declared and true work of some ten thousand requests."""
    world = queue(8, 0.1, run or constant(), requests_per_day=4_000.0)
    world = replace(world, size=size or lognormal(SIZE), declared=declared, num_agents=num_agents)
    rows = simulated(validate(world), "random", num_streams=4, chunk_steps=4_500)
    work_s = world.services[0].work_s
    run_s = (rows.fate.finish_s - rows.fate.start_s)[rows.live]
    return rows.request.expected_run_s[rows.live] / work_s, run_s / work_s, rows.request.agent[rows.live]


@pytest.mark.slow
@pytest.mark.parametrize(
    "informative", [pytest.param(0.0, marks=pytest.mark.slow), 0.5, pytest.param(1.0, marks=pytest.mark.slow)]
)
def test_what_is_needed_keeps_its_mean_and_follows_what_is_declared_as_far_as_it_is_informative(informative):
    declared, needed, _ = drawn(Declared(excess=4.0, informative=informative), run=lognormal(0.3))
    assert declared.mean() == pytest.approx(4.0, rel=0.05)
    assert needed.mean() == pytest.approx(1.0, rel=0.05)
    slope = np.polyfit(np.log(declared), np.log(needed), 1)[0]
    assert slope == pytest.approx(informative, abs=0.03)
    spread = np.std(np.log(needed) - informative * np.log(declared))
    assert spread == pytest.approx(0.3, rel=0.1)


@pytest.mark.slow
def test_agents_exaggerate_each_in_its_own_way():
    declared, needed, agent = drawn(
        Declared(excess=3.0, agent_spread=0.7), size=constant(), run=constant(), num_agents=30
    )
    np.testing.assert_allclose(needed, 1.0, rtol=0.02)
    factor = np.array([declared[agent == one].mean() for one in np.unique(agent)])
    assert all(np.ptp(declared[agent == one]) < 1e-3 for one in np.unique(agent))
    assert np.std(np.log(factor)) == pytest.approx(0.7, rel=0.35)  # 30 agents
    assert np.ptp(np.log(factor)) > 1.5


def test_round_values_are_asked_for_and_limits_end_runs():
    work_s = queue(8, 0.1, constant(), requests_per_day=4_000.0).services[0].work_s
    values = tuple(work_s * factor for factor in (0.5, 1.0, 2.0, 4.0))
    declared, needed, _ = drawn(
        Declared(rounded_to_s=values, limits=True),
        size=exponential(),
        run=Law("hyperexponential", variation=6.0),
    )
    round_ones = declared <= 4.0 * (1.0 + 1e-5)
    np.testing.assert_allclose(
        np.unique(np.round(declared[round_ones], 4)), np.array([0.5, 1.0, 2.0, 4.0]), rtol=1e-3
    )
    assert np.mean(~round_ones) == pytest.approx(np.exp(-4.0), abs=0.006)
    assert np.mean(declared == declared.min()) == pytest.approx(1.0 - np.exp(-0.5), abs=0.02)
    assert np.all(needed <= declared + 0.02 / work_s)
    assert 0.1 < np.mean(needed > 0.999 * declared - 0.02 / work_s) < 0.5, (
        "some runs are ended by their limit"
    )


def killing(speed, discipline="fifo", *, kills=True, num_cores=2, memory_gib=4.0):
    """A node that kills what reaches the declared time, which a third of the runs do at full speed."""
    world = queue(num_cores, 0.6, lognormal(1.0), requests_per_day=900.0)
    node = replace(world.nodes[0], speed=speed, discipline=discipline, memory_gib=memory_gib)
    service = replace(world.services[0], work_s=100.0, memory_gib=1.0)
    declared = Declared(excess=1.2, rounded_to_s=(150.0, 400.0), kills=kills)
    return validate(
        replace(world, nodes=(node,), services=(service,), declared=declared, size=lognormal(SIZE))
    )


@pytest.mark.parametrize("mechanics", [mechanics_of, pytest.param(unfolding, marks=pytest.mark.slow)])
@pytest.mark.parametrize("speed", [0.5, pytest.param(1.0, marks=pytest.mark.slow)])
def test_what_has_run_as_long_as_declared_is_killed_on_whatever_node(mechanics, speed):
    rows = simulated(killing(speed), "random", num_streams=1, chunk_steps=500, mechanics=mechanics)
    roomy = killing(speed, kills=False, num_cores=64, memory_gib=64.0)
    alone = simulated(roomy, "random", num_streams=1, chunk_steps=500)
    live = rows.live[:, 0]
    arrival_s, declared_s = rows.arrival_s[live, 0], rows.request.expected_run_s[live, 0]
    needed_s = (alone.fate.finish_s - alone.fate.start_s)[live, 0]
    ends_s = ends_by_hand(
        arrival_s, np.minimum(needed_s, declared_s), 2, lambda jobs: dict.fromkeys(jobs, 1.0)
    )
    np.testing.assert_allclose(rows.fate.finish_s[live, 0], ends_s, atol=0.5)
    killed = needed_s > declared_s
    np.testing.assert_array_equal(rows.fate.status[live, 0] == FAILED, killed)
    assert 0.1 < np.mean(killed) < 0.7
    assert np.mean(rows.fate.start_s[live, 0] > arrival_s + 1.0) > 0.1, "some wait"


@pytest.mark.slow
def test_where_cores_are_shared_a_run_is_killed_by_the_clock():
    """Two cores shared by at most four: crowded, more runs reach the declared time, and make room."""
    num_cores, most = 2, 4
    rows = simulated(killing(1.0, "ps"), "random", num_streams=1, chunk_steps=500)
    roomy = killing(1.0, kills=False, num_cores=64, memory_gib=64.0)
    alone = simulated(roomy, "random", num_streams=1, chunk_steps=500)
    live = rows.live[:, 0]
    arrival_s, declared_s, start_s, finish_s = (
        np.asarray(leaf[live, 0], np.float64)
        for leaf in (rows.arrival_s, rows.request.expected_run_s, alone.fate.start_s, alone.fate.finish_s)
    )

    def equally(jobs):
        return dict.fromkeys(jobs, min(1.0, num_cores / max(len(jobs), 1)))

    ends_s = ends_by_hand(arrival_s, finish_s - start_s, most, equally, declared_s)
    np.testing.assert_allclose(rows.fate.finish_s[live, 0], ends_s, atol=0.5)
    killed = rows.fate.status[live, 0] == FAILED
    assert np.sum(killed & (finish_s - start_s < 0.9 * declared_s)) > 10, (
        "alone they would have ended in time"
    )
    run_s = rows.fate.finish_s[live, 0] - rows.fate.start_s[live, 0]
    np.testing.assert_allclose(run_s[killed], declared_s[killed], atol=0.1)


@pytest.mark.parametrize(
    ("declared", "words"),
    [
        (Declared(2.0), "no limit"),
        (Declared(limits=True), "ends, completed"),
        (Declared(kills=True), "is killed"),
    ],
)
def test_a_log_says_what_a_declared_run_time_means(declared, words):
    told = [note for note in _notes(replace(preset("small"), declared=declared), None) if words in note]
    assert len(told) == 1
    assert told[0].startswith("requested_run_s")


def test_a_reference_knows_that_no_run_lasts_longer_than_declared():
    world, clock_s = killing(1.0, "ps", memory_gib=2.0), jnp.array([10.0])
    today, names = conditions(world, 0), names_in(world, cluster_of(world))
    system = begin_unfolding(jax.random.key(0), world, today, 4, clock_s)

    def held(*values):
        return jnp.array(values)[None, :, None]

    jobs = system.jobs._replace(
        phase=held(SERVED, SERVED, WAITING, GONE), left_s=held(300.0, 40.0, 500.0, 0.0),
        start_s=held(5.0, 0.0, jnp.inf, jnp.inf), killed_after_s=held(20.0, 150.0, 150.0, jnp.inf),
    )  # fmt: skip
    events = SimpleNamespace(clock_s=clock_s, request=SimpleNamespace(agent=jnp.zeros((1, 1), int)))
    seen = reveal_in(world, today, names)(system._replace(jobs=jobs), SimpleNamespace(observed_events=events))
    np.testing.assert_allclose(seen.left_s[0, :, 0], [15.0, 40.0, 150.0, 0.0])
    assert seen.wait_s[0, 0] == pytest.approx(15.0 + 150.0 / 2)


@pytest.mark.parametrize(("of_service", "at_requested"), [((), True), ((0.0, *[12.5] * 6), False)])
def test_policies_in_the_truth_know_of_limits_what_they_know_in_the_log(of_service, at_requested):
    world = preset("small")
    cluster, today = cluster_of(world), conditions(world, 0)
    known = replace(cluster, timeouts=Timeouts(of_service, at_requested))
    drawn = jnp.linspace(0.1, 0.9, 24).reshape(4, 6), jnp.linspace(0.0, 80_000.0, 6)
    seen, unknowing = (request_at(world, today, names_in(world, one), *drawn, 0) for one in (known, cluster))
    limit_s = (
        seen.expected_run_s if at_requested else np.full(6, 12.5)
    )  # what runs declare is expected of them here
    np.testing.assert_allclose(seen.run_limit_s, limit_s, rtol=1e-6)
    assert unknowing.run_limit_s is None


@pytest.mark.slow
@pytest.mark.parametrize("exponent", [1.0, 0.4])
def test_policies_in_the_truth_expect_of_an_agent_what_they_do_in_the_log(exponent):
    """And what the request needs stays what it was."""
    world = replace(
        preset("small"), declared=Declared(excess=3.0, agent_spread=0.7, informative=0.5, limits=True)
    )
    cluster, today = cluster_of(world), conditions(world, 0)
    factors = np.linspace(0.5, 2.0, 2 * len(cluster.services)).reshape(-1, 2)
    typical_s = np.linspace(10.0, 90.0, len(cluster.services))
    habits = RunHabits(("agent-001", "agent-003"), factors, exponent, typical_s)
    uniforms, clock_s = np.random.default_rng(0).random((4, 500)), jnp.linspace(0.0, 80_000.0, 500)
    plain, known = names_in(world, cluster), names_in(world, cluster, habits)
    raw, seen = (
        request_at(world, today, names, jnp.asarray(uniforms), clock_s, 0) for names in (plain, known)
    )
    agents = [f"agent-{agent:03d}" for agent in np.asarray(seen.agent).tolist()]
    service, asked_s = np.asarray(seen.service), np.asarray(raw.expected_run_s, np.float64)
    assert np.any(habits.factor(service, agents) > 1.2)
    expected_s = expected_s_of(habits, service, agents, asked_s, np.ones(500, bool))
    np.testing.assert_allclose(seen.expected_run_s, expected_s, rtol=1e-4)
    of_both = (needed(world, today, *each, jnp.ones(500)) for each in ((plain, raw), (known, seen)))
    np.testing.assert_allclose(*of_both, rtol=1e-3)


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        (Declared(excess=0.5), "excess"),
        (Declared(informative=2.0), "informative"),
        (Declared(agent_spread=-1.0), "agent_spread"),
        (Declared(rounded_to_s=(60.0, 30.0)), "rounded_to_s"),
        (Declared(limits=True, kills=True), "limits and declared.kills"),
    ],
)
def test_declarations_that_cannot_be_are_refused_by_name(declared, named):
    with pytest.raises(ConfigError, match=named):
        validate(replace(queue(1, 0.5, constant()), declared=declared))
