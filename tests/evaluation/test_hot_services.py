"""Services that are hot by turns: their law, what is forecast of them, and who plans with the forecast."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from evaluation.baselines import HPA_REQUESTS, STATIC_DEPLOYMENT
from evaluation.problems.orchestration.bench import OrchestrationBenchConfig, Pair, bench_orchestration
from evaluation.simulator.arrivals import services_now
from evaluation.simulator.conditions import conditions
from evaluation.simulator.options import Tides
from evaluation.simulator.slots import SlotConfig, time_scaled
from evaluation.simulator.slots.chance import true_chance
from evaluation.simulator.slots.forecast import true_forecast
from evaluation.simulator.slots.instance import instance
from evaluation.simulator.world import validate
from evaluation.simulator.world_files import load_world
from logs_schema.errors import ConfigError
from offline_rl.rules.orchestration.lookahead import DeploymentLookahead, lookahead
from offline_rl.rules.orchestration.planned import planned
from tests.evaluation.slot_runs import small_kais
from twin.contracts import Array
from twin.orchestration.chance import Chance
from twin.orchestration.counts import nothing_counted
from twin.orchestration.deployment import first_deployed
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.forecast import DayForecast
from twin.orchestration.frame_config import FrameConfig, history_frames
from twin.orchestration.frame_state import FrameState, Load, Measured, Scaling, as_orchestration
from twin.orchestration.slots import SlotState

FILE = Path(__file__).parents[2] / "evaluation/examples/worlds/hot_services.toml"
TIDAL = replace(small_kais(), tides=Tides(2.0, 3.0, 0.25))


def test_the_mix_of_services_is_as_its_formula_says() -> None:
    today, time_s = conditions(TIDAL, 0.0), 9_000.0
    agents = jnp.arange(4)
    found = np.diff(services_now(TIDAL, today, agents, jnp.full(4, time_s)), axis=0, prepend=0.0)
    for agent in range(4):
        usual = np.diff(today.service_cumulative[:, today.agent_scenario[agent]], prepend=0.0)
        cycle = 3.0 * time_s / TIDAL.day_s - today.tide_phase[:, today.agent_site[agent]]
        wanted = usual * np.exp(2.0 * np.cos(2.0 * np.pi * cycle))
        np.testing.assert_allclose(found[:, agent], wanted / wanted.sum(), atol=2e-5)


def test_what_is_forecast_adds_up_to_the_requests_of_a_day() -> None:
    pace = time_scaled(TIDAL, SlotConfig())
    forecast = true_forecast(instance(pace, SlotConfig()))
    assert forecast.rate_per_s.sum() * forecast.bin_s == pytest.approx(pace.requests_per_day, rel=1e-3)
    share = forecast.rate_per_s.sum(axis=2) / forecast.rate_per_s.sum(axis=(1, 2))[:, None]
    assert (share.max(axis=0)[1:] > 3.0 * share.min(axis=0)[1:]).all()  # every service has its time
    calm = true_forecast(instance(replace(pace, tides=Tides()), SlotConfig())).rate_per_s.sum(axis=2)
    assert (calm / calm.sum(axis=1, keepdims=True)).std(axis=0).max() < 1e-5


@pytest.mark.parametrize("tides", [Tides(-1.0), Tides(1.0, 0.0), Tides(1.0, 1.0, 2.0)])
def test_tides_that_cannot_be_are_refused(tides: Tides) -> None:
    with pytest.raises(ConfigError, match="tides"):
        validate(replace(TIDAL, tides=tides))


@pytest.fixture(scope="module")
def case() -> EdgeCloud:
    return instance(time_scaled(small_kais(), SlotConfig()), SlotConfig()).public


def state_of(case: EdgeCloud) -> FrameState:
    """Midnight, nothing measured."""
    deployment, zero = first_deployed(case, ()), jnp.zeros((case.num_services, case.num_nodes))
    serving = jnp.sum(deployment.replicas, axis=1)
    measured = Measured(*(leaf[None] for leaf in (serving * jnp.nan, serving * jnp.nan, serving, serving)))
    load = Load(zero, zero, jnp.zeros((case.num_services, case.num_seats)))
    return FrameState(
        jnp.float32(0.0), jnp.ones(case.num_nodes, bool), deployment, load, measured, nothing_counted(())
    )


def asks_for(case: EdgeCloud, busy: np.ndarray) -> list[tuple[int, int]]:
    """(node, change) of the planned deployment where so many replicas of every service shall be busy."""
    rate = np.zeros((2, case.num_services, len(case.cluster.sites)), np.float32)
    rate[:, :, 0] = busy
    ones = np.ones((case.num_services, case.num_nodes), np.float32)
    forecast = DayForecast(1e6, rate, ones, ones[:1], ones[:1])
    action = planned(case, forecast, FrameConfig())(jax.random.key(0), state_of(case))
    asked = as_orchestration(action, case.num_services)
    return list(zip(np.asarray(asked.node).tolist(), np.asarray(asked.change).tolist(), strict=True))


@pytest.mark.slow
def test_who_lacks_most_is_added_where_there_is_room(case: EdgeCloud) -> None:
    busy = case.replicas.sum(axis=1).astype(np.float32) * 0.3
    busy[3] = case.replicas[3].sum() + 5.0
    assert [change for _, change in asks_for(case, busy)] == [3, 3]


@pytest.mark.slow
def test_without_room_what_is_not_needed_leaves_first(case: EdgeCloud) -> None:
    used_gib = case.replica_gib @ case.replicas
    full = case._replace(memory_gib=used_gib.astype(np.float32))
    busy = np.full(case.num_services, 0.05, np.float32)
    busy[0], busy[3] = 0.0, case.replicas[3].sum() + 2.0
    (node, change), _ = asks_for(full, busy)
    assert change < 0
    assert change != -3
    assert full.replicas[-change, node] > 0


@pytest.mark.slow
def test_the_base_rule_of_a_lookahead_reads_the_clock_and_the_loads_of_the_system() -> None:
    """In the model the clock begins at zero; who plans by the time of day there must be told the system's."""
    truth = instance(time_scaled(small_kais(), SlotConfig()), SlotConfig())
    seen: list[tuple[float, float]] = []

    def base(_key: Array, state: FrameState) -> Scaling:
        jax.debug.callback(
            lambda *read: seen.append(tuple(map(float, read))),
            jnp.min(state.clock_s),
            jnp.nanmin(state.measured.busy),
        )
        nothing = jnp.zeros((frames.num_changes, *state.clock_s.shape), jnp.int32)
        return Scaling(nothing, nothing)

    def dispatch(_key: Array, _state: SlotState, legal: Array) -> Array:
        return jnp.argmax(legal, axis=0).astype(jnp.int32)

    def model_of(state: FrameState) -> Chance:
        return true_chance(truth, state.clock_s[..., None, None])

    frames, now = FrameConfig(), state_of(truth.public)
    busy = jnp.full((history_frames(SlotConfig(), frames), truth.public.num_services), 7.0)
    now = now._replace(clock_s=jnp.float32(200.0), measured=now.measured._replace(busy=busy, requests=busy))
    config = DeploymentLookahead(num_frames=2, num_repetitions=1)
    looks = lookahead(truth.public, model_of, dispatch, frames, [base], config)
    jax.block_until_ready(jax.jit(looks)(jax.random.key(0), now))
    jax.effects_barrier()
    frame_s = SlotConfig().slot_s * SlotConfig().slots_per_frame
    assert sorted(clock_s for clock_s, _ in seen) == pytest.approx([200.0, 200.0 + frame_s])
    assert max(least for _, least in seen) == 7.0


@pytest.mark.slow
def test_in_the_world_of_hot_services_planning_beats_what_is_published_and_what_stays() -> None:
    names = ("hpa_requests", "greedy_scaling", "lookahead")
    pairs = [Pair("least_loaded", name) for name in names]
    config = OrchestrationBenchConfig(num_seeds=2, num_frames=30)
    scores = bench_orchestration(load_world(FILE), (0,), pairs, config)
    on_time = {score.pair.orchestration: score.per_run.mean() for score in scores}
    assert set(on_time) == {"static", *names}
    assert on_time["lookahead"] > on_time["static"] + 0.08
    assert on_time["lookahead"] > max(on_time[name] for name in names[:2]) + 0.04
    assert {STATIC_DEPLOYMENT.name, HPA_REQUESTS.name} < set(on_time)
