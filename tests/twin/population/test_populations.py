"""One contract for every way to generate agents, and what tells the ways apart."""

from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from logs_schema.errors import ProductError
from tests.twin.population.toys import agents, tiny
from twin.population import (
    METHODS,
    AgentConditions,
    AgentTable,
    Population,
    PopulationError,
    bootstrap,
    chain,
    fit_population,
    gan_smmsg,
    gan_smmsg_paper,
    load_population,
    marginals,
    mixture,
    plain_gan,
    sample_agents,
    save_population,
    wgan,
    wgan_gp,
)

LIKELIHOOD = tiny(adversary=0.0, chained=True, rows=1.0, discriminator_steps=0)
QUICK = (bootstrap(), marginals(), chain(LIKELIHOOD))
PAPERS = gan_smmsg_paper(tiny(entropy=1.0, columns=1.0))
SLOW = (
    mixture(),
    gan_smmsg(tiny(chained=True, rows=1.0)),
    PAPERS,
    plain_gan(tiny()),
    wgan(tiny()),
    wgan_gp(tiny()),
)
EVERY = [
    *(pytest.param(one, id=one.name) for one in QUICK),
    *(pytest.param(one, id=one.name, marks=pytest.mark.slow) for one in SLOW),
]


def same(one: AgentTable, other: AgentTable) -> bool:
    pairs = [(one.labels[name], other.labels[name]) for name in one.labels]
    pairs += [(one.continuous[name], other.continuous[name]) for name in one.continuous]
    return all(np.array_equal(*pair) for pair in pairs)


@pytest.mark.parametrize("population", EVERY)
def test_fits_samples_and_comes_back_from_disk(population: Population, tmp_path: Path) -> None:
    table = agents(400)
    model = fit_population(jax.random.key(0), population, table)
    asked = AgentConditions(np.array(["quick", "slow", "quick"] * 20), np.linspace(0.0, 0.99, 60))
    drawn = sample_agents(jax.random.key(1), model, asked)
    assert drawn.num_rows == 60
    assert np.array_equal(drawn.conditions.scenario, asked.scenario)
    assert list(drawn.categorical) == list(table.categorical)
    low, high = np.min(table.continuous["input_mib"]), np.max(table.continuous["input_mib"])
    assert np.all((drawn.continuous["input_mib"] >= low) & (drawn.continuous["input_mib"] <= high))
    assert np.all(drawn.continuous["cpu_cores"] == 1.0)
    assert same(drawn, sample_agents(jax.random.key(1), model, asked))
    assert not same(drawn, sample_agents(jax.random.key(2), model, asked))
    save_population(model, tmp_path)
    again = load_population(tmp_path, METHODS)
    assert again.population.config == population.config
    assert again.record == model.record
    assert same(drawn, sample_agents(jax.random.key(1), again, asked))
    assert sample_agents(jax.random.key(3), model, 37).num_rows == 37
    with pytest.raises(PopulationError, match="scenario"):
        sample_agents(jax.random.key(1), model, AgentConditions(np.array(["new"]), np.zeros(1)))


def test_every_method_can_be_loaded_by_name() -> None:
    assert sorted(METHODS) == sorted(one.name for one in (*QUICK, *SLOW))


def test_a_foreign_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProductError, match="cannot read the population"):
        load_population(tmp_path, METHODS)


def test_nothing_to_generate_is_refused() -> None:
    table = agents(200)
    constant = AgentTable(table.conditions, {}, {"cpu_cores": np.ones(200)})
    with pytest.raises(PopulationError, match="nothing to generate"):
        fit_population(jax.random.key(0), bootstrap(), constant)


def shares(table: AgentTable) -> np.ndarray:
    return np.array([np.mean(table.categorical["service"] == name) for name in ("a", "b", "c")])


@pytest.mark.parametrize("population", [bootstrap(), mixture()], ids=lambda one: one.name)
def test_conditions_are_heeded(population: Population) -> None:
    model = fit_population(jax.random.key(0), population, agents(24_000))
    half = np.linspace(0.0, 0.5, 2000)
    for scenario, day, law in (("slow", half, [0.3, 0.6, 0.1]), ("quick", 0.499 + half, [0.1, 0.2, 0.7])):
        found = shares(sample_agents(jax.random.key(1), model, AgentConditions(np.full(2000, scenario), day)))
        assert np.all(np.abs(found - law) < 0.08)


def test_agents_are_dealt_and_not_drawn_one_by_one() -> None:
    """As many rows as there are agents show every agent once, though each could give four rows."""
    table = replace(agents(800), unit=np.arange(800) // 4)
    model = fit_population(jax.random.key(0), bootstrap(), table)
    own = {size: number // 4 for number, size in enumerate(table.continuous["input_mib"])}
    even = AgentConditions(np.repeat(["quick", "slow"], 100), np.tile(np.linspace(0.0, 0.99, 100), 2))
    drawn = sample_agents(jax.random.key(1), model, even).continuous["input_mib"]
    grid = np.array(sorted(own))
    nearest = grid[np.argmin(np.abs(np.log(drawn)[:, None] - np.log(grid)[None]), axis=1)]
    assert len({own[size] for size in nearest}) > 190  # independent draws of 200: about 126


def test_the_product_of_marginals_keeps_columns_and_nothing_else() -> None:
    table = agents(4000)
    drawn = sample_agents(
        jax.random.key(1), fit_population(jax.random.key(0), marginals(), table), table.conditions
    )
    assert np.all(np.abs(shares(drawn) - shares(table)) < 0.03)

    def dependence(one: AgentTable) -> float:
        is_c = one.categorical["service"] == "c"
        size = np.log(one.continuous["input_mib"])
        return float(np.mean(size[is_c]) - np.mean(size[~is_c]))

    assert dependence(table) > 1.5
    assert abs(dependence(drawn)) < 0.15
