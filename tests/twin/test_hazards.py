"""Nodes that lose what runs on them: read off a log, drawn by twins, observed by policies and bundles alike."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from logs_schema.errors import ProductError
from offline_rl.placement_contract import placement_contract, setting_of
from offline_rl.runner import Request, load
from offline_rl.runner.setting import parse_setting
from tests.offline_rl.bundles import RULE, made_policy, made_system
from tests.offline_rl.retelling import needs_setting
from tests.twin.made import made_cluster, made_encoding, made_rows
from twin.placement.encoded_rows import levels_at
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES
from twin.placement.hazards import Exposures, fit_hazards, survival
from twin.placement.learned import ACCEPTANCE, USUAL_RUN, answer_parameters, num_inputs
from twin.placement.outcome_model import NUM_OUTPUTS, NUM_UNIFORMS, Observed, log_likelihood, sample_answer
from twin.placement.run_filter import RunDynamics
from twin.placement.types import COMPLETED, FAILED
from twin.placement.wakes import Wakes
from twin.records import at_rows

CLASSES = ("safe", "safe", "spot", "spot", "spot")
AN_HOUR = 1.0 / 3600.0
FAILS = np.array([0.02, 0.005, 0.01])
USUAL_S = np.array([20.0, 200.0, 1500.0])


def log_of(
    rng: np.random.Generator, hazard: np.ndarray, num: int = 8000, *, by_length: float = 0.0
) -> Exposures:
    """Runs of three services on nodes that lose them; of longer ones `by_length` more a second fail on every node."""
    kind, node = rng.integers(3, size=num), rng.integers(len(hazard), size=num)
    speed = np.linspace(0.7, 1.4, len(hazard))[node]
    run_s = USUAL_S[kind] * speed * np.exp(0.3 * rng.standard_normal(num))
    lost_s = rng.exponential(1.0 / np.maximum(hazard[node], 1e-12))
    fails = rng.random(num) < FAILS[kind] + by_length * USUAL_S[kind]
    ends_s = np.where(fails, run_s * rng.random(num), run_s)
    ran_s = np.minimum(ends_s, lost_s)
    failed = fails | (lost_s < ends_s)
    return Exposures(kind, node, ran_s, USUAL_S[kind] * speed, USUAL_S[kind], failed, np.ones(num, bool))


def test_hazards_are_found_by_node_and_drawn_to_their_class():
    planted = np.array([0.0, 0.0, 0.2, 0.4, 0.6]) * AN_HOUR
    found = np.array(fit_hazards(log_of(np.random.default_rng(0), planted, 40_000), CLASSES))
    np.testing.assert_allclose(found[2:], planted[2:], rtol=0.25)
    assert np.all(found[:2] < 0.03 * AN_HOUR)
    seldom = log_of(np.random.default_rng(1), planted)
    few = (seldom.node < 4) | (np.cumsum(seldom.node == 4) <= 3)  # three runs tell nothing of the last node
    of_new = fit_hazards(at_rows(seldom, np.flatnonzero(few)), CLASSES)[4]
    assert 0.2 * AN_HOUR < of_new < 0.4 * AN_HOUR


def test_runs_whose_end_the_log_lacks_have_not_run_ever_since():
    """One in a hundred, as if it had run for two days: thirty times what all others have."""
    log = log_of(np.random.default_rng(0), np.array([0.0, 0.0, 0.2, 0.4, 0.6]) * AN_HOUR, 20_000)
    lost = np.arange(20_000) % 100 == 0
    rest = log._replace(ended=~lost, failed=log.failed & ~lost)
    unending = rest._replace(ran_s=np.where(lost, 172_800.0, log.ran_s))
    np.testing.assert_allclose(fit_hazards(unending, CLASSES)[2:], fit_hazards(rest, CLASSES)[2:], rtol=0.15)


def test_failures_of_services_and_of_whatever_runs_for_long_are_no_hazard():
    """None of 40 logs, of either kind; by chance one in 1,600 would show some."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        assert fit_hazards(log_of(rng, np.zeros(5), 3000), CLASSES) == ()
        assert fit_hazards(log_of(rng, np.zeros(5), 3000, by_length=1e-4), CLASSES) == ()
    few = log_of(np.random.default_rng(0), np.full(5, AN_HOUR), 200)
    assert fit_hazards(few, CLASSES) == ()


@pytest.mark.slow
def test_a_run_fails_by_itself_or_is_lost():
    cluster = replace(made_cluster(), hazard=(0.0, 0.1, 0.0, 0.2))
    encoding, node = made_encoding(cluster), np.array([0, 1, 3])
    run_units, outputs = np.array([5.0, 5.0, 2.0]), np.zeros((NUM_OUTPUTS, 3), np.float32)
    outputs[2] = -1.0
    inputs = np.zeros((num_inputs(cluster), 3), np.float32)
    inputs[USUAL_RUN], inputs[ACCEPTANCE] = np.log1p(run_units), 0.5
    inputs[len(NODE_FEATURES) + node, np.arange(3)] = 1.0
    of_node = answer_parameters(jnp.asarray(outputs), jnp.asarray(inputs), encoding)
    keeps = survival(np.array(cluster.hazard)[node], run_units * encoding.problem.time_unit_s)
    fails = 1.0 - (1.0 - 1.0 / (1.0 + np.exp(1.0))) * keeps
    np.testing.assert_allclose(1.0 / (1.0 + np.exp(-of_node.fail_logit)), fails, rtol=1e-5)

    uniforms = np.full((NUM_UNIFORMS, 3), 0.4, np.float32)
    uniforms[2] = fails * np.array([0.25, 0.5, 1.5])
    whole, cut = (sample_answer(of_node, uniforms, 1.0, (9.0, 9.0), cut_short=cut) for cut in (False, True))
    assert np.asarray(cut.failed).tolist() == [True, True, False]
    np.testing.assert_allclose(cut.run_s / whole.run_s, [0.25, 0.5, 1.0], rtol=1e-5)
    yes, no = np.ones(3, bool), np.zeros(3, bool)
    seen = Observed(yes, no, np.array([True, False, False]), np.zeros(3), yes, np.zeros(3), yes)
    longer = seen._replace(failed=no, finished=np.array([False, True, True]))
    both = log_likelihood(of_node, seen, 1.0, cut_short=True), log_likelihood(of_node, longer, 1.0)
    drops_and_fails = np.log(0.5) + np.log(fails[0])  # which a run that goes on does not tell yet
    np.testing.assert_allclose(both[0][0], both[1][0] + drops_and_fails, rtol=1e-5)
    np.testing.assert_allclose(both[0][1:], both[1][1:])


def test_runs_that_failed_teach_nothing_where_nodes_lose_them():
    cluster = replace(made_cluster(), dynamics=RunDynamics(0.1, node_variance=0.2))
    rows = made_rows(np.random.default_rng(0), cluster, 60)
    at_s = rows.arrival_s[-1:]

    def level(hazard: tuple[float, ...], status: int) -> np.ndarray:
        encoding = made_encoding(replace(cluster, hazard=hazard))
        some = rows._replace(status=np.full(60, status, np.int32))
        return np.asarray(levels_at(some, at_s, encoding, np.asarray(rows.request.expected_run_s)).mean)

    some = (0.1,) * cluster.num_nodes
    assert np.array_equal(level((), FAILED), level((), COMPLETED))
    assert np.array_equal(level(some, COMPLETED), level((), COMPLETED))
    assert not level(some, FAILED).any()


def unsafe_system(**others: object):
    encoding, windows = made_system()
    hazard = tuple(np.linspace(0.0, 0.1, encoding.cluster.num_nodes).tolist())
    return replace(encoding, cluster=replace(encoding.cluster, hazard=hazard, **others)), windows


@pytest.mark.slow
@pytest.mark.parametrize("sleeps", [False, True])
def test_whole_episodes_are_seen_and_decided_as_in_training(tmp_path, sleeps):
    wakes = Wakes(np.linspace(0.5, 3.0, 4), np.array([7.0, 0.0, 30.0, 5.0])) if sleeps else None
    encoding, windows = unsafe_system(wakes=wakes)
    needs_setting(tmp_path, RULE, encoding, windows, hazard=())


def test_contracts_say_which_nodes_lose_what_runs_there_and_bundles_keep_long_runs_off_them(tmp_path):
    encoding, _ = unsafe_system(cold=None)
    assert Encoding.from_json(encoding.to_json()).cluster.hazard == encoding.cluster.hazard
    assert '"hazard"' not in replace(encoding, cluster=replace(encoding.cluster, hazard=())).to_json()
    meanings = {one.name: one.description for one in placement_contract(encoding, RULE).choice_features}
    assert meanings["acceptance"].endswith("by its losses per second of running")
    setting = setting_of(encoding)
    for wrong in ([0.1], [-1.0] * 4):
        with pytest.raises(ProductError, match="hazards must be finite"):
            parse_setting(setting | {"hazard": wrong})
    made_policy(tmp_path / "bundle", encoding, RULE)
    policy = load(tmp_path / "bundle")
    books = policy.ledger([{"name": name} for name in encoding.cluster.node_names], 0.0)
    for run_s in (1.0, 100.0):
        asked = Request(cpu_cores=0.5, site="site-0", requested_run_s=run_s)
        seen = books.explain(asked, 1.0).features
        for name, hazard in zip(encoding.cluster.node_names, encoding.cluster.hazard, strict=True):
            usual_s = encoding.problem.time_unit_s * np.expm1(seen[name]["usual_run"])
            accepted = seen[name]["acceptance"] / survival(hazard, usual_s)
            assert np.min(np.abs(accepted - policy.setting.acceptance_of_scenario[0])) < 1e-3
