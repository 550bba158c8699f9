"""Workloads: listed requests are walked through exactly; patterns swing, clip and draw as they say."""

import itertools
import json
from dataclasses import replace
from datetime import date
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.baselines import BASELINES, TRUTH_BASELINES
from evaluation.commands import cli
from evaluation.comparison.metrics import ON_TIME
from evaluation.comparison.shifts import ShiftConfig, plan_shifts
from evaluation.judges.judge import Candidate
from evaluation.judges.players import players_of
from evaluation.judges.truth import truth_judge, truth_program, workload_beside
from evaluation.simulator.conditions import service_mix, world_draw
from evaluation.simulator.logs import simulate, truth_folder
from evaluation.simulator.names import names_in
from evaluation.simulator.patterns import PATTERNS, PERIODS, SWING, loads, swinging_times, swings
from evaluation.simulator.pool import HIDDEN, classes_of, mean_work_s, read_pool
from evaluation.simulator.presets import preset
from evaluation.simulator.request_lists import STEP_ULPS, DayRequests, distinct, next_row, padded
from evaluation.simulator.truth import day_of_truth, truth_arrivals
from evaluation.simulator.vocabulary import cluster_of
from evaluation.simulator.workloads import FILE, load_workload, workload
from evaluation.simulator.world_files import world_of
from logs_schema import Archive
from logs_schema.errors import ConfigError
from logs_schema.importing import import_log
from offline_rl.networks import actor, example_of
from tests.evaluation.worlds import truth_of
from twin.placement.bookkeeping import PlacementConfig
from twin.placement.encoding import fit_encoding

SMALL = preset("small")
MORNING_TASKS, NUM_TASKS = 900, 1_200


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """Two days of batch tasks of three types, three quarters of them before noon, many at the same second."""
    random = np.random.default_rng(0)
    start = np.sort(
        np.concatenate(
            [random.integers(86_400, 129_600, MORNING_TASKS), random.integers(216_000, 255_000, 300)]
        )
    )
    kind = random.choice([1, 6, 10], NUM_TASKS, p=[0.7, 0.2, 0.1])
    run = np.maximum(random.exponential(60.0, NUM_TASKS).astype(int), 1)
    rows = (
        f"T{row},1,j_{row},{kind[row]},Terminated,{start[row]},{start[row] + run[row]},100,0.5"
        for row in range(NUM_TASKS)
    )
    folder = tmp_path_factory.mktemp("tasks")
    (folder / "tasks.csv").write_text("\n".join(rows) + "\n")
    import_log("alibaba2018", [folder / "tasks.csv"], folder / "archive")
    return Archive(folder / "archive")


def made(tasks, name, num_days=2, world=SMALL, seed=0):
    return workload(tasks, world, name, num_days, seed)


def swing_of(day, weight, periods, day_s):
    """Amplitude of the periodic part of a weighted sum over its mean."""
    turns = np.exp(-2j * np.pi * periods * np.asarray(day.arrival_s, np.float64) / day_s)
    return 2.0 * abs(np.sum(weight * turns)) / np.sum(weight)


@pytest.mark.parametrize("offset_s", [0.0, 100.123, 70_000.7])
def test_a_list_is_walked_request_by_request_whatever_the_clocks_zero(offset_s):
    random = np.random.default_rng(0)
    times = distinct(np.sort(np.concatenate([random.integers(1, 86_000, 400), [5] * 60, [80_000] * 64])))
    assert (np.diff(times) > 0).all()
    ties = np.float32(80_000) + np.arange(64) * STEP_ULPS * np.spacing(np.float32(80_000))
    np.testing.assert_array_equal(times[(times >= 80_000) & (times < 80_001)][:64], ties)
    zeros = np.zeros(len(times), np.int32)
    asked = padded(DayRequests(times, zeros, zeros, times, times, times), len(times) + 3, 86_400.0)
    step = jax.jit(lambda clock_s: next_row(asked, jnp.full_like(clock_s, offset_s), clock_s))
    clock_s, rows = np.zeros(2, np.float32), []
    for _ in range(int(np.sum(times > offset_s))):
        clock_s, row = step(clock_s)
        rows.append(int(np.asarray(row)[0]))
    assert rows == np.flatnonzero(times > np.float32(offset_s)).tolist()
    clock_s, row = step(clock_s)
    assert np.asarray(row)[0] == len(times)
    assert np.asarray(clock_s)[0] == np.float32(86_400.0) - np.float32(offset_s)


def test_instants_that_differ_stay_as_they_are():
    times = np.array([0.5, 0.75, 10.0, 43_000.25])
    np.testing.assert_array_equal(distinct(times), times.astype(np.float32))
    assert distinct(np.zeros(2))[0] > 0.0


def test_classes_go_where_most_requests_share_one():
    assert classes_of(np.array([8, 1, 1]), 5).tolist() == [3, 1, 1]
    assert classes_of(np.array([6, 3]), 6).tolist() == [4, 2]
    assert classes_of(np.array([5]), 3).tolist() == [3]


def test_a_foreign_log_becomes_the_worlds_services_at_the_worlds_load(tasks):
    """Types of 70, 20 and 10 % on six services: four, one and one class, long tasks apart from short ones."""
    pool = read_pool(tasks, SMALL)
    assert len(pool.clock_s) == NUM_TASKS
    assert (pool.agent == HIDDEN).all()
    kind = np.array(
        [int(label) for label in tasks.read("requests", columns=["service"])["service"].to_pylist()]
    )
    assert [len(np.unique(pool.service[kind == one])) for one in (1, 6, 10)] == [4, 1, 1]
    assert len(np.unique(pool.service)) == 6
    run_s = tasks.read("requests", columns=["run_s"])["run_s"].to_numpy()
    classes = [run_s[pool.service == one] for one in np.unique(pool.service[kind == 1])]
    classes.sort(key=np.mean)
    assert all(below.max() <= above.min() for below, above in itertools.pairwise(classes))
    assert pool.run_s.mean() == pytest.approx(mean_work_s(SMALL, world_draw(SMALL)), rel=1e-6)


def test_logged_days_keep_the_logs_instants(tasks):
    days = made(tasks, "logged", num_days=5).days
    arrival = tasks.read("requests", columns=["arrival"])["arrival"].cast("int64").to_numpy() / 1e6
    assert [len(day.arrival_s) for day in days] == [MORNING_TASKS, 300]
    for day, start_s in zip(days, (86_400.0, 172_800.0), strict=True):
        logged = arrival[(arrival >= start_s) & (arrival < start_s + 86_400.0)] - start_s
        assert np.abs(day.arrival_s - logged).max() < 0.1  # ties follow each other by steps of the clock


def test_p4_is_the_log_in_order_stretched_to_the_presets_load(tasks):
    world = replace(SMALL, requests_per_day=500.0)
    clipped, pool = made(tasks, "P4", num_days=3, world=world).days, read_pool(tasks, world)
    assert [len(day.arrival_s) for day in clipped] == [500, 500, 500]
    service = np.concatenate([day.service for day in clipped])
    np.testing.assert_array_equal(service, np.concatenate([pool.service, pool.service[:300]]))
    gaps, logged = np.diff(clipped[0].arrival_s), np.diff(pool.clock_s[:500])
    stretch = world.day_s / (pool.clock_s[500] - pool.clock_s[0])
    np.testing.assert_allclose(gaps[logged > 0], logged[logged > 0] * stretch, atol=0.7)


@pytest.mark.parametrize(
    ("name", "periods", "of_memory"),
    [("P1", PERIODS, False), ("P2", PERIODS, True), ("P3", 2 * PERIODS, False)],
)
def test_periodic_patterns_swing_what_they_say_and_nothing_else(tasks, name, periods, of_memory):
    world = replace(SMALL, requests_per_day=40_000.0)
    day = made(tasks, name, num_days=1, world=world).days[0]
    assert abs(len(day.arrival_s) - 40_000) < 5 * 200
    work, memory = loads(read_pool(tasks, world), world)
    moving, still = (memory, work) if of_memory else (work, memory)
    share = np.bincount(day.service, minlength=6) / len(day.service)
    reach = np.sum(share * moving * swings(share, work, memory, of_memory=of_memory)) / np.sum(share * moving)
    assert swing_of(day, moving[day.service], periods, world.day_s) == pytest.approx(reach, abs=0.03)
    assert reach > 0.8 * SWING
    assert swing_of(day, still[day.service], periods, world.day_s) < 0.03
    other = PERIODS if periods != PERIODS else 2 * PERIODS
    assert swing_of(day, moving[day.service], other, world.day_s) < 0.03


def test_swings_by_hand():
    """Work 1 and 3, equal memory: service rates swing against each other by c, and the work by c / 2."""
    half, work, memory = np.array([0.5, 0.5]), np.array([1.0, 3.0]), np.ones(2)
    np.testing.assert_allclose(
        swings(half, work, memory, of_memory=False), [-2 * SWING, 2 * SWING], atol=1e-9
    )
    with pytest.raises(ConfigError, match="cannot vary independently"):
        swings(half, work, work, of_memory=False)


def test_swinging_times_have_the_density():
    times = swinging_times(np.random.default_rng(1), 40_000, -0.6, 3)
    sine = np.sin(2 * np.pi * 3 * times)
    assert np.mean(sine) == pytest.approx(-0.3, abs=5 * 0.7 / 200)
    assert np.mean(sine**2) == pytest.approx(0.5, abs=5 * 0.36 / 200)


def test_fitted_days_have_the_logs_marginals(tasks):
    world = replace(SMALL, requests_per_day=20_000.0)
    day, pool = made(tasks, "fitted", num_days=1, world=world).days[0], read_pool(tasks, world)
    num = len(day.arrival_s)
    assert abs(num - 20_000) < 5 * np.sqrt(20_000)
    assert np.mean(day.arrival_s < world.day_s / 2) == pytest.approx(
        MORNING_TASKS / NUM_TASKS, abs=5 * 0.5 / np.sqrt(num)
    )
    mix, logged = (np.bincount(part, minlength=6) / len(part) for part in (day.service, pool.service))
    assert np.abs(mix - logged).max() < 5 * 0.5 / np.sqrt(num)
    for service in range(6):
        drawn, known = day.expected_run_s[day.service == service], pool.run_s[pool.service == service]
        assert np.quantile(drawn, 0.5) == pytest.approx(np.quantile(known, 0.5), rel=0.15)
        assert known.min() * 0.999 <= drawn.min()
        assert drawn.max() <= known.max() * 1.001


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_every_pattern_makes_lists_a_world_can_walk_and_the_same_ones_again(tasks, pattern):
    one, again = (made(tasks, pattern.name) for _ in range(2))
    assert one.facts == again.facts
    for day in one.days:
        assert (np.diff(day.arrival_s) > 0).all()
        assert day.arrival_s[0] > 0.0
        assert day.arrival_s[-1] < SMALL.day_s
        assert ((day.agent >= 0) & (day.agent < SMALL.num_agents)).all()
        assert min(leaf.min() for leaf in (day.expected_run_s, day.deadline_s)) > 0.0
        assert day.input_mib.min() >= 0.0
    padding = one.on(3)
    assert len(padding.arrival_s) == one.num_rows
    assert padding.num_requests == len(one.days[1].arrival_s)


def test_the_truth_asks_for_the_listed_requests_in_a_clusters_vocabulary(tasks):
    cluster = cluster_of(SMALL)
    turned = replace(cluster, services=(cluster.services[0], *cluster.services[:0:-1]))
    names, listed = names_in(SMALL, turned), made(tasks, "logged")
    arrivals = truth_arrivals(SMALL, day_of_truth(SMALL, 1, listed), names)
    first = jax.jit(lambda: arrivals.init(jax.random.key(0), (2,))[1])
    follow = jax.jit(
        lambda clock_s: arrivals.next(jax.random.key(0), None, SimpleNamespace(clock_s=clock_s), None, None)[
            1
        ]
    )
    day, found = listed.days[1], [jax.tree.map(np.asarray, first())]
    for _ in range(len(day.arrival_s) - 1):
        found.append(jax.tree.map(np.asarray, follow(found[-1].clock_s)))
    np.testing.assert_array_equal([float(one.clock_s[0]) for one in found], day.arrival_s)
    asked = [names.world_service[int(one.request.service[0, 1])] for one in found]
    np.testing.assert_array_equal(asked, day.service)
    np.testing.assert_array_equal(
        [float(one.request.expected_run_s[0, 0]) for one in found], day.expected_run_s
    )
    assert not any(bool(one.done.any()) for one in found)
    assert np.asarray(follow(found[-1].clock_s).done).all()


def test_a_workload_declares_its_rates_work_and_deadlines(tasks):
    listed = made(tasks, "P4")
    declared, day = listed.declared(SMALL), listed.days[0]
    assert declared.requests_per_day == pytest.approx(SMALL.requests_per_day)
    both = np.concatenate([part.service for part in listed.days])
    mix = service_mix(declared, world_draw(declared), 0.0)
    np.testing.assert_allclose(mix, np.bincount(both, minlength=6)[:, None] / len(both) * np.ones(3))
    assert mean_work_s(declared, world_draw(declared)) == pytest.approx(
        np.mean(np.concatenate([part.expected_run_s for part in listed.days])), rel=1e-5
    )
    one = replace(listed, days=(DayRequests(*(leaf[:1] for leaf in day)),)).declared(SMALL)
    scenario = SMALL.scenarios[world_draw(SMALL).scenario[day.agent[0]]]
    asked = one.services[day.service[0]]
    assert asked.deadline_s * scenario.deadline_factor == pytest.approx(day.deadline_s[0])
    assert (asked.work_s, asked.input_mib) == pytest.approx((day.expected_run_s[0], day.input_mib[0]))


@pytest.mark.slow
def test_a_worlds_own_log_is_taken_as_it_is(tmp_path):
    simulate("small", 1, "mix", 0, tmp_path / "log")
    log = Archive(tmp_path / "log")
    assert_listed(log, workload(log, SMALL, "logged", 3, 0).days)
    assert not workload_beside(log)


def assert_listed(log, days):
    """The requests of a simulated log of day 0 and on are those of the lists."""
    population = world_draw(SMALL)
    for index, day in enumerate(days):
        rows = log.read("requests", days=[date(2024, 1, 1 + index)])
        midnight_s = (date(2024, 1, 1 + index) - date(1970, 1, 1)).days * 86_400.0
        arrival_s = rows["arrival"].cast("int64").to_numpy() / 1e6 - midnight_s
        np.testing.assert_allclose(arrival_s, day.arrival_s, rtol=0, atol=2e-6)
        assert rows["agent"].to_pylist() == [f"agent-{agent:03d}" for agent in day.agent]
        assert rows["site"].to_pylist() == [SMALL.sites[population.site[agent]] for agent in day.agent]
        assert rows["service"].to_pylist() == [SMALL.services[service].name for service in day.service]
        for name, leaf in (
            ("requested_run_s", day.expected_run_s),
            ("input_mib", day.input_mib),
            ("deadline_s", day.deadline_s),
        ):
            np.testing.assert_allclose(rows[name].to_numpy(), leaf, rtol=1e-6, err_msg=name)


@pytest.mark.slow
def test_the_truth_needs_the_arrivals_kept_beside_the_log(tasks, tmp_path, capsys):
    words = [
        "simulate",
        "--arrivals",
        str(tasks.path),
        "--pattern",
        "p4",
        "--days",
        "2",
        "--json",
        "--no-progress",
    ]
    assert cli.main([*words, "--out", str(tmp_path / "log")]) == 0
    told = json.loads(capsys.readouterr().out)
    log = Archive(tmp_path / "log")
    assert told["num_requests"] == log.num_rows("requests") == 2 * SMALL.requests_per_day
    kept = workload_beside(log)
    assert log.facts["ground_truth"]["arrivals"] == kept.facts == told["arrivals"]
    assert kept.archive == tasks.content_hash
    assert_listed(log, kept.days)
    assert truth_of(SMALL, cluster_of(SMALL), PlacementConfig(), 1.0, workload=kept)
    with pytest.raises(ConfigError, match="cannot be rebuilt") as refused:
        truth_program(log.facts, fit_encoding(log, log.days("requests")), {})
    assert tasks.content_hash in str(refused.value)
    truth = log.facts["ground_truth"]
    with pytest.raises(ConfigError, match="are not those it was made of"):
        load_workload(
            truth | {"arrivals": truth["arrivals"] | {"days": "0" * 64}}, truth_folder(log.path), SMALL.day_s
        )
    (truth_folder(log.path) / FILE).unlink()
    with pytest.raises(ConfigError, match="cannot be rebuilt"):
        workload_beside(log)


def test_what_cannot_be_is_refused(tasks, tmp_path, capsys):
    words = ["simulate", "--out", str(tmp_path / "none"), "--no-progress", "--arrivals"]
    assert cli.main([*words, str(tasks.path), "--pattern", "P5"]) == 2
    assert "logged, fitted, P1, P2, P3, P4" in capsys.readouterr().err
    assert cli.main([*words, str(tmp_path / "absent")]) == 2
    assert cli.main([*words[:-1], "--pattern", "P1"]) == 2
    assert "a pattern of arrival without arrivals" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    leaving = replace(SMALL, reactions=replace(SMALL.reactions, leaving=0.5))
    with pytest.raises(ConfigError, match="decide the workload"):
        made(tasks, "P4", world=leaving)


@pytest.mark.slow
def test_the_real_sample_loads_the_kais_preset_as_it_was_meant_to_be(tmp_path, shared_data):
    import_log("alibaba2018", [shared_data / "alibaba-2018-sample"], tmp_path / "archive")
    world = preset("kais")
    pool = read_pool(Archive(tmp_path / "archive"), world)
    assert len(np.unique(pool.service)) == len(world.services)
    for name, periods in (("P1", PERIODS), ("P4", None)):
        day = workload(Archive(tmp_path / "archive"), world, name, 1, 0).days[0]
        offered = np.sum(day.expected_run_s) / world.day_s
        wanted = mean_work_s(world, world_draw(world)) * world.requests_per_day / world.day_s
        assert offered == pytest.approx(wanted, rel=0.2)
        if periods:
            assert swing_of(day, day.expected_run_s, periods, world.day_s) == pytest.approx(SWING, abs=0.08)


@pytest.mark.slow
def test_the_logs_behaviour_lives_the_listed_day_again_as_it_was_logged(tasks, tmp_path):
    simulate("small", 2, "mix", 0, tmp_path / "log", arrivals=tasks.path, pattern="P1")
    log = Archive(tmp_path / "log")
    days, kept = log.days("requests"), workload_beside(log)
    encoding = fit_encoding(log, days)
    world = world_of(log.facts["ground_truth"])
    system = truth_of(world, encoding.cluster, encoding.problem, 1.0, workload=kept)
    network = actor(example_of(system))
    nothing = network.init(jax.random.key(0))
    players = players_of(encoding.cluster, network, BASELINES)
    program = truth_program(log.facts, encoding, players, kept, num_days=16, rules=TRUTH_BASELINES)
    plan = plan_shifts({}, days, ShiftConfig("0d"), truth=True)
    judge = truth_judge(program, log.facts, encoding, plan.shifts[0], kept)
    names = ("history", "random", "gsp_ss")
    results = judge.evaluate(jax.random.key(1), [Candidate(name, name, nothing) for name in names])
    simulated, by_chance, scheduled = (result.decisions for result in results)
    assert len(simulated.arrival_s) == 16 * kept.on(1).num_requests
    rows = log.read("requests", days=days[1:])
    finish_s, arrival_s = (
        rows[name].cast("int64").to_numpy(zero_copy_only=False) / 1e6 for name in ("finish", "arrival")
    )
    logged = np.mean(finish_s - arrival_s <= rows["deadline_s"].to_numpy())
    values = [ON_TIME.compute(one) for one in (simulated, by_chance, scheduled)]
    assert values[0] == pytest.approx(logged, abs=0.04)
    assert values[1] < values[0] - 0.1
    assert values[1] < values[2] < values[0]
