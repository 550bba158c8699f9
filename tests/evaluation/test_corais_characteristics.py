"""LB, WP, HA of CoRaiS's table VI: good solvers hold them, those that look at no load do not."""

from functools import partial

import numpy as np
import pytest

from evaluation.reproduction.corais_characteristics import (
    BACKLOG_S,
    HA,
    LB,
    WP,
    characteristic_instances,
    judged,
    measure,
)
from evaluation.reproduction.corais_learning import networks, quick_networks
from evaluation.reproduction.corais_scales import TABLE_3
from evaluation.reproduction.corais_solvers import answering, hand_written, learned
from logs_schema.errors import ConfigError
from offline_rl.assignment.corais import corais_logits, corais_params
from offline_rl.assignment.layers import softmax
from offline_rl.assignment.learning import train_corais, train_priced
from offline_rl.assignment.priced import pairs_of, priced_logits, priced_params
from twin.assignment.objective import completion_s
from twin.assignment.types import row_of


def by_test(solver, num_experiments=12):
    return {row["test"]: row for row in measure(solver, num_experiments)}


def test_edges_are_busy_as_the_tests_say():
    for test, seconds in BACKLOG_S.items():
        costs = row_of(characteristic_instances(test, 3), 1).costs
        nobody = costs._replace(**{name: getattr(costs, name)[:0] for name in costs._fields[:4]})
        assert completion_s(nobody, np.zeros(0, int)) == pytest.approx(seconds)
    slope = characteristic_instances(HA, 2).edges.compute[0, :, 1]
    assert (np.diff(slope) < 0.0).all()
    first, other = (characteristic_instances(test, 2).edges.xy for test in (LB, WP))
    assert (first == other).all()


@pytest.mark.parametrize("name", ["insertion", "insertion_local_search"])
def test_solvers_on_the_exact_objective_hold_them_closely(name):
    found = by_test(hand_written(1.0, 0.01)[name])
    assert all(row["holds"] for row in found.values())
    assert max(row["spread"] for row in found.values()) < 0.06
    assert found[WP]["requests"][0] > 1.5 * found[WP]["requests"][-1]
    assert found[HA]["requests"][-1] > 2.0 * found[HA]["requests"][0]
    assert found[LB]["in_order"] is None


@pytest.mark.parametrize("name", ["local", "predicted", "random_1"])
def test_solvers_that_look_at_no_load_do_not(name):
    found = by_test(hand_written(1.0, 0.01)[name])
    assert not found[WP]["holds"]
    assert not found[HA]["holds"]
    assert found[LB]["holds"] is False or name == "random_1"  # enough draws are balanced on average


@pytest.mark.slow
def test_rounding_and_many_random_ones_hold_them():
    solvers = hand_written(1.0, 0.01)
    for name in ("lp_rounding", "random_1000"):
        assert all(row["holds"] for row in by_test(solvers[name], 20).values()), name


def test_the_papers_own_figures_hold_and_one_edge_for_all_does_not():
    published = {
        LB: ([21.595, 19.617, 19.519, 19.609, 19.66], [4.1647, 4.1958, 4.1825, 4.1935, 4.1953]),
        HA: ([11.985, 14.866, 21.516, 25.838, 25.795], [4.2231, 4.2165, 4.077, 3.6357, 2.4347]),
    }
    for test, (requests, seconds) in published.items():
        assert judged(test, np.array([requests]), np.array([seconds]))["holds"]
    ends_s = np.full((1, 5), 4.0)
    rising = np.array([[12.0, 16.0, 20.0, 24.0, 28.0]])
    assert judged(HA, rising, ends_s)["holds"]
    assert not judged(WP, rising, ends_s)["holds"]
    assert judged(WP, rising[:, ::-1], ends_s)["holds"]
    assert not judged(LB, rising, ends_s)["holds"]
    assert not judged(WP, np.full((1, 5), 20.0), ends_s)["holds"]
    assert not judged(HA, rising, np.array([[1.0, 4.0, 4.0, 4.0, 4.0]]))["holds"]


def drawn_once(logits_of):
    """A solver that follows a network's probabilities: no best of many, no search."""

    def solver(instance, rng):
        below = softmax(logits_of(instance)).cumsum(axis=-1)
        return (rng.random((len(below), 1)) > below[:, :-1]).sum(axis=-1)

    return answering(solver)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(networks(quick_networks())))
def test_small_trained_networks_share_by_load_and_speed(name):
    """What 1,000 samples find is good whatever the network; so its own probabilities are looked at, and the solver.

    The likeliest edge alone is the same for all equal requests, so it fails.
    """
    config, law = quick_networks(), TABLE_3[0].instances
    network = networks(config)[name]
    if network is None:
        untrained, params = (
            priced_params(np.random.default_rng(0)),
            train_priced(0, law, config.ours_learning),
        )
    else:
        untrained = corais_params(np.random.default_rng(0), network)
        params = train_corais(0, law, network, config.corais_learning)

    def logits(params, instance):
        if network is None:
            return priced_logits(params, pairs_of(instance.costs))
        return corais_logits(params, instance.edges, instance.requests)

    learnt, before = (by_test(drawn_once(partial(logits, one)), 40) for one in (params, untrained))
    assert (learnt[WP]["in_order"], learnt[HA]["in_order"]) == (1.0, 1.0)
    assert before[WP]["in_order"] < 1.0
    solvers = learned(name, params, 0.02)
    found = by_test(solvers[name], 20)
    assert (found[WP]["in_order"], found[HA]["in_order"]) == (1.0, 1.0)
    assert found[LB]["holds"]
    assert found[WP]["spread"] < 0.3
    assert found[HA]["spread"] < (0.1 if network is None else 0.6)
    assert not any(row["holds"] for row in by_test(solvers[f"{name}_greedy"]).values())


@pytest.mark.parametrize("wrong", [("XX", 3), (LB, 0)])
def test_impossible_experiments_are_refused(wrong):
    with pytest.raises(ConfigError, match="characteristic tests"):
        characteristic_instances(*wrong)
