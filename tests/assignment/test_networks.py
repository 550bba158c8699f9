"""The networks: NumPy and JAX agree, what must not matter does not, and training learns what there is to learn."""

import jax
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from offline_rl.assignment import learning
from offline_rl.assignment.config import LearningConfig
from offline_rl.assignment.corais import CoraisNetwork, corais_logits, corais_params
from offline_rl.assignment.decoding import DecodingConfig, best_of_samples, decode, greedy, likely
from offline_rl.assignment.insertion import insertion
from offline_rl.assignment.layers import softmax
from offline_rl.assignment.learning import train_corais, train_priced
from offline_rl.assignment.local_search import LocalSearchConfig
from offline_rl.assignment.priced import pairs_of, priced_logits, priced_params
from offline_rl.errors import TrainingError
from tests.assignment.making import drawn, plain_costs
from twin.assignment.instances import InstanceConfig, draw_instances
from twin.assignment.objective import makespan_s
from twin.assignment.types import Costs, Edges, RoundRequests, row_of

SMALL = CoraisNetwork(16, 32, 1, 1)
NOW = LocalSearchConfig(time_s=0.0)


def permuted(instance, edges, requests):
    """An instance with its edges and requests in another order."""
    place = np.argsort(edges)
    told = instance.requests
    other = RoundRequests(*(leaf[requests] for leaf in told))
    known = np.where(other.predicted >= 0, place[other.predicted], -1)
    return (
        Edges(*(leaf[edges] for leaf in instance.edges)),
        other._replace(source=place[other.source], predicted=known),
        Costs(
            *(of_pair[requests][:, edges] for of_pair in instance.costs[:3]),
            place[instance.costs.source[requests]],
            *(leaf[edges] for leaf in instance.costs[4:]),
        ),
    )


@pytest.mark.parametrize("ablation", [(True, True), (False, False)])
def test_the_order_of_edges_and_requests_does_not_matter(ablation):
    rng, instance = np.random.default_rng(0), drawn(0, 4, 9)
    params = corais_params(rng, CoraisNetwork(16, 32, 1, 1, *ablation))
    edges, requests = rng.permutation(4), rng.permutation(9)
    known, asked, costs = permuted(instance, edges, requests)
    first = corais_logits(params, instance.edges, instance.requests)
    assert corais_logits(params, known, asked) == pytest.approx(first[requests][:, edges], abs=1e-4)
    ours = priced_params(rng)
    first = priced_logits(ours, pairs_of(instance.costs))
    assert priced_logits(ours, pairs_of(costs)) == pytest.approx(first[requests][:, edges], abs=1e-4)


def test_jax_and_numpy_agree_and_a_batch_is_its_rows():
    batch = draw_instances(np.random.default_rng(0), InstanceConfig(6, 3, 7), 2)
    rng = np.random.default_rng(1)
    params, ours = corais_params(rng, SMALL), priced_params(rng)

    def both(instance):
        return (
            corais_logits(params, instance.edges, instance.requests),
            priced_logits(ours, pairs_of(instance.costs)),
        )

    single = jax.tree.map(lambda leaf: leaf.astype(np.float32) if leaf.dtype == np.float64 else leaf, batch)
    for row in range(2):
        for alone, together, in_jax in zip(
            both(row_of(batch, row)), both(batch), jax.jit(both)(single), strict=True
        ):
            assert alone == pytest.approx(together[row], abs=1e-4)
            assert alone == pytest.approx(np.asarray(in_jax)[row], abs=1e-3)


def test_ours_knows_no_unit_of_time_and_asks_nobody_who_does_not_host():
    params, costs = priced_params(np.random.default_rng(0)), drawn(0, 3, 8).costs
    scaled = Costs(*(leaf if leaf is costs.source else 60.0 * leaf for leaf in costs))
    first = priced_logits(params, pairs_of(costs))
    assert priced_logits(params, pairs_of(scaled)) == pytest.approx(first, abs=1e-3)
    some = costs._replace(work_s=np.where(np.arange(3) == 1, np.inf, costs.work_s))
    logits = priced_logits(params, pairs_of(some))
    assert np.isfinite(logits).all()
    assert 1 not in greedy(logits)


def test_samples_follow_the_logits():
    logits = np.log(np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]))
    assert softmax(logits).sum(axis=-1) == pytest.approx([1.0, 1.0])
    costs = plain_costs([[3.0, 1.0, 3.0], [3.0, 3.0, 1.0]])
    assert greedy(logits).tolist() == [0, 2]
    assert best_of_samples(np.random.default_rng(0), costs, logits, 0).tolist() == [0, 2]
    assert best_of_samples(np.random.default_rng(0), costs, logits, 200).tolist() == [1, 2]


def test_shares_that_add_up_to_more_than_one_by_rounding_lead_to_no_edge_of_another_request():
    """The sums of many thirds of float32 pass 1 before the last edges, which have no share; who draws nearly 0 next is
    looked up right behind them."""

    class Lowest:
        def random(self, shape):
            return np.full(shape, 1e-9)

    rng = np.random.default_rng(0)
    for _ in range(50):
        logits = (3.0 * rng.normal(size=(20, 20))).astype(np.float32)
        logits[:, -3:] = -1e9
        edge = best_of_samples(Lowest(), plain_costs(rng.random((20, 20))), logits, 1)
        assert edge.min() >= 0


def test_decoding_is_never_worse_than_insertion():
    costs, rng = drawn(3, 5, 60).costs, np.random.default_rng(0)
    for _ in range(3):
        found = decode(
            rng, costs, rng.normal(size=costs.work_s.shape), DecodingConfig(num_samples=8, search=NOW)
        )
        assert makespan_s(costs, found) <= makespan_s(costs, insertion(costs))
    kept = likely(costs, np.log(costs.work_s), 1.0).work_s
    assert (np.isfinite(kept).sum(axis=1) == 1).all()


@pytest.mark.slow
def test_training_learns_where_work_is_quick():
    """One edge is ten times as quick, nothing else matters: reinforcement finds it, imitation copies it."""
    law = InstanceConfig(2, 2, 6, replicas=(1, 10), s_per_mib=(1.0, 1.0), backlogs=(0, 0), transfer_s=0.0)
    held_out = draw_instances(np.random.default_rng(9), law, 40)
    reinforcing = LearningConfig(num_updates=80, batch=16, num_samples=16, learning_rate=1e-3)
    imitating = LearningConfig(
        0, 16, 2, 1e-2, imitation_updates=80, imitation_instances=40, solver_restarts=2
    )
    trained, ours = train_corais(0, law, SMALL, reinforcing), train_priced(0, law, imitating)
    random_s, corais_s, ours_s = [], [], []
    for row in range(40):
        instance, rng = row_of(held_out, row), np.random.default_rng(row)
        random_s.append(makespan_s(instance.costs, rng.integers(2, size=6)))
        logits = corais_logits(trained, instance.edges, instance.requests)
        corais_s.append(makespan_s(instance.costs, best_of_samples(rng, instance.costs, logits, 4)))
        ours_s.append(makespan_s(instance.costs, greedy(priced_logits(ours, pairs_of(instance.costs)))))
    assert np.mean(corais_s) < 0.8 * np.mean(random_s)
    assert np.mean(ours_s) < 0.8 * np.mean(random_s)


@pytest.mark.slow
def test_a_training_that_is_killed_goes_on_to_the_same_bits(monkeypatch, tmp_path):
    """Killed while the solver answers, while it imitates and while it reinforces; the generator's state is kept."""
    monkeypatch.setattr(learning, "INSTANCES_PER_SAVE", 3)
    monkeypatch.setattr(learning, "UPDATES_PER_SAVE", 4)
    law, solve, solved = InstanceConfig(2, 2, 6), learning.insertion_local_search, []
    config = LearningConfig(8, 4, 4, 1e-2, imitation_updates=8, imitation_instances=8, solver_restarts=2)

    def solving(costs, search, rng):
        solved.append(1)
        if len(solved) == 5:
            raise KeyboardInterrupt
        return solve(costs, search, rng)

    def dying(number):
        def stage(done, *_):
            if done == number:
                raise KeyboardInterrupt

        return stage

    calm = train_priced(0, law, config)
    monkeypatch.setattr(learning, "insertion_local_search", solving)
    monkeypatch.setattr(learning, "UPDATES_PER_SHOWN", 1)
    for number in (16, 6, 13):
        with pytest.raises(KeyboardInterrupt):
            train_priced(0, law, config, dying(number), tmp_path)
    found = train_priced(0, law, config, None, tmp_path)
    assert len(solved) == 5 + 5  # three answers were kept
    jax.tree.map(np.testing.assert_array_equal, found, calm)


def test_impossible_networks_and_training_are_refused():
    with pytest.raises(TrainingError, match="width of 12"):
        CoraisNetwork(width=12)
    with pytest.raises(ConfigError, match="num_samples"):
        LearningConfig(num_samples=1)
