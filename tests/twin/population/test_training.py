"""The loop behind trained populations: stopped when it goes astray, judged by unseen agents."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.twin.population.toys import agents
from twin.contracts import PyTree
from twin.population import AgentTable, PopulationError, fit_population, gan_smmsg, sample_agents
from twin.population.adversarial import AdversarialConfig, GANMetrics, _split
from twin.population.encoding import AgentEncoding, fit_agent_encoding
from twin.population.fidelity import GeneratorFidelity, Reference, coarse_codes, mean_pairwise_kl
from twin.population.generators import in_chain
from twin.population.training import Search, SearchConfig, train


def stand_in(values: list[float], scores: list[float], coverage: float = 1.0) -> tuple[Search, SearchConfig]:
    """A search whose parameters count its rounds, whose figures and scores are given evaluation by evaluation."""

    def one(_key: jax.Array, walk: jax.Array, data: jax.Array) -> tuple[jax.Array, GANMetrics]:
        value = data[walk.astype(jnp.int32)]
        return walk + 1.0, GANMetrics(value, value, value, value, value)

    def judge(_key: jax.Array, parameters: jax.Array) -> GeneratorFidelity:
        return GeneratorFidelity(scores[int(parameters) - 1], coverage)

    search = Search(lambda _key: jnp.float32(0.0), one, lambda walk: walk, judge)
    return search, SearchConfig(num_rounds=len(values), rounds_a_look=1, patience=2)


def run(values: list[float], scores: list[float], coverage: float = 1.0) -> tuple[float, dict]:
    search, config = stand_in(values, scores, coverage)
    parameters, record = train(jax.random.key(0), search, np.array(values, np.float32), config)
    return float(parameters), record


def test_the_best_look_is_kept_and_patience_ends_the_search() -> None:
    best, record = run([0.6] * 6, [3.0, 1.0, 2.0, 1.5, 0.1, 0.1])
    assert (best, record["best_look"], record["looks"]) == (2.0, 1, 4)
    assert record["curves"]["held_out_pairs"] == [3.0, 1.0, 2.0, 1.5]
    assert record["warnings"] == []


def test_numbers_that_are_not_finite_stop_it_with_advice() -> None:
    with pytest.raises(PopulationError, match="not finite") as caught:
        run([0.6, float("nan"), 0.6], [3.0, 2.0, 1.0])
    assert "learning_rate" in caught.value.advice
    assert "rounds 1 to 1" in caught.value.where
    with pytest.raises(PopulationError, match="beyond all bounds"):
        run([0.6, 1e8], [2.0, 1.0])


def test_a_runaway_adversary_and_a_collapse_are_reported() -> None:
    _, record = run([0.99] * 3, [3.0, 2.0, 1.0], coverage=0.4)
    accuracy, collapse = record["warnings"]
    assert "3 of 3 evaluations" in accuracy
    assert "40%" in collapse


def test_the_judge_knows_equal_laws_and_different_ones() -> None:
    table, other = agents(3000), agents(4096, seed=1)
    encoding = fit_agent_encoding(table)
    conditions = encoding.encode_conditions(table.conditions)
    reference = Reference.of(encoding, encoding.encode(table), conditions)
    rows = encoding.encode(other)
    same = reference.judge(jax.random.key(0), lambda _key, asked: _like(encoding, other, rows, asked))
    assert same.pairs < 0.02
    assert same.coverage == 1.0
    shuffled = np.random.default_rng(0).permuted(rows[3:], axis=1)
    broken = reference.judge(jax.random.key(0), lambda _key, _asked: np.concatenate([rows[:3], shuffled]))
    assert broken.pairs > 3.0 * same.pairs
    lone = np.zeros_like(rows)
    lone[[0, 3]] = 1.0
    assert reference.judge(jax.random.key(0), lambda _key, _asked: lone).coverage < 0.9


def test_no_agent_is_learned_from_and_judged_by() -> None:
    unit = np.repeat(np.arange(40), 5)
    kept, aside = _split(jax.random.key(0), unit, 0.15)
    assert sorted([*kept, *aside]) == list(range(200))
    assert len(aside) == 30
    assert not set(unit[kept]) & set(unit[aside])
    alone = [len(part) for part in _split(jax.random.key(0), np.zeros(200, int), 0.15)]
    assert alone == [170, 30]  # nobody could be set aside as a whole


@pytest.mark.slow
def test_settled_columns_are_as_frequent_as_in_the_rows() -> None:
    """An untrained chain draws services evenly; settled, it draws them as they are, given what stands before."""
    table = agents(4000)
    encoding = fit_agent_encoding(table)
    rows, conditions = encoding.encode(table), encoding.encode_conditions(table.conditions)
    chain = in_chain(encoding, (8,), 0.5)
    untrained = chain.init(jax.random.key(0))
    assert chain.settle is not None

    def away(parameters: PyTree) -> float:
        drawn = chain.generate(parameters, jax.random.key(1), jnp.asarray(conditions)).hard
        one, other = (coarse_codes(encoding, np.asarray(part), conditions)[0] for part in (rows, drawn))
        shares = [[np.bincount(codes, minlength=8) / 4000 for codes in part[:3]] for part in (one, other)]
        return float(np.max(np.abs(np.array(shares[0]) - np.array(shares[1]))))

    settled = chain.settle(untrained, jnp.asarray(rows), jnp.asarray(conditions))
    assert away(untrained) > 0.07
    assert away(settled) < 0.035


def _like(encoding: AgentEncoding, other: AgentTable, rows: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Real rows dealt to the conditions asked for."""
    theirs = encoding.cells(encoding.encode_conditions(other.conditions))
    wanted = encoding.cells(asked)
    random = np.random.default_rng(0)
    chosen = [random.choice(np.flatnonzero(theirs == cell)) for cell in wanted]
    return rows[:, chosen]


def test_the_pairwise_kl_of_known_laws() -> None:
    one = np.array([[0, 0, 1, 1] * 2500, [0, 1, 0, 1] * 2500])
    bent = np.array([[0] * 5000 + [1] * 5000, [0] * 4000 + [1] * 1000 + [0] * 1000 + [1] * 4000])
    expected = 0.5 * np.log(0.25 / 0.4) + 0.5 * np.log(0.25 / 0.1)
    assert abs(mean_pairwise_kl(one, bent, [2, 2]) - expected) < 1e-3
    assert mean_pairwise_kl(one, one, [2, 2]) == 0.0


@pytest.mark.slow
def test_the_default_learns_a_joint_law() -> None:
    table = agents(24_000)  # with few rows of a scenario hours are not told apart
    config = AdversarialConfig(adversary=0.1, rows=1.0, chained=True, hidden=(64,))
    model = fit_population(jax.random.key(0), gan_smmsg(config), table)
    drawn = sample_agents(jax.random.key(1), model, table.conditions)
    night = (table.conditions.day_fraction < 0.5) & (table.conditions.scenario == "slow")
    shares = [np.mean(drawn.categorical["service"][night] == name) for name in ("a", "b", "c")]
    assert np.all(np.abs(np.array(shares) - [0.3, 0.6, 0.1]) < 0.06)
    size = np.log(drawn.continuous["input_mib"])
    for name, scale in (("a", 1.0), ("b", 4.0), ("c", 20.0)):
        of_one = size[drawn.categorical["service"] == name]
        assert abs(np.median(of_one) - np.log(scale)) < 0.15
        assert abs(np.std(of_one) - 0.3) < 0.12
