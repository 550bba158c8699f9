"""Agents as matrices: what comes back, what is looked up, what is refused."""

from dataclasses import replace

import numpy as np
import pytest

from tests.twin.population.toys import agents
from twin.population import AgentConditions, AgentTable, PopulationError
from twin.population.columns import MAX_LEVELS, levels_of, ranks_of
from twin.population.encoding import AgentEncoding, fit_agent_encoding


def test_what_is_written_comes_back() -> None:
    table = agents(500)
    encoding = fit_agent_encoding(table)
    back = encoding.decode(encoding.encode(table), table.conditions)
    assert list(back.continuous) == list(table.continuous)
    for name, column in table.categorical.items():
        assert np.array_equal(back.categorical[name], column)
    for name in ("cpu_cores", "deadline_s"):
        assert np.array_equal(back.continuous[name], table.continuous[name])
    assert np.allclose(back.continuous["input_mib"], table.continuous["input_mib"], rtol=1e-3)


def test_constants_and_consequences_are_not_generated() -> None:
    encoding = fit_agent_encoding(agents(500))
    assert [column.name for column in encoding.columns] == ["service", "site", "input_mib"]
    assert {rule.name: rule.sources for rule in encoding.derived} == {
        "cpu_cores": (),
        "deadline_s": ("scenario", "service"),
    }


def test_amounts_that_say_the_same_are_generated_once() -> None:
    table = agents(500)
    cores = np.tile([1.0, 2.0, 4.0, 8.0, 16.0], 100)
    table = replace(table, continuous={"cpu_cores": cores, "num_nodes": cores / 64.0})
    encoding = fit_agent_encoding(table)
    assert [rule.sources for rule in encoding.derived if rule.name == "num_nodes"] == [("cpu_cores",)]
    back = AgentEncoding.from_json(encoding.to_json()).decode(encoding.encode(table), table.conditions)
    assert np.array_equal(back.continuous["num_nodes"], cores / 64.0)


def test_turned_conditions_are_those_of_the_later_hour() -> None:
    table = agents(200)
    encoding = fit_agent_encoding(table)
    scenario, time = table.conditions
    moved = np.linspace(-0.7, 0.7, 200)
    turned = encoding.turned(encoding.encode_conditions(table.conditions), moved)
    wanted = encoding.encode_conditions(AgentConditions(scenario, (time + moved) % 1.0))
    assert np.allclose(turned, wanted, atol=1e-5)


def test_a_consequence_of_a_combination_never_seen_follows_the_first_source() -> None:
    table = agents(500)
    kept = (table.conditions.scenario == "slow") | (table.categorical["service"] != "c")
    encoding = fit_agent_encoding(table.take(kept))
    asked = AgentConditions(np.array(["quick"]), np.array([0.2]))
    found = encoding.decode(np.array([[0.0], [0.0], [1.0], [1.0], [0.0], [0.0]], np.float32), asked)
    assert found.categorical["service"].shape == (1,)
    assert np.isin(found.continuous["deadline_s"], table.continuous["deadline_s"]).all()


def test_ranks_of_training_values_are_even_and_steps_stay_steps() -> None:
    random = np.random.default_rng(1)
    values = np.concatenate([np.full(400, 3600.0), random.lognormal(5.0, 2.0, 600)])
    ranks = ranks_of("requested_run_s", values)
    code = ranks.encode(values, random)
    counts = np.histogram(code, bins=10, range=(-1.0, 1.0))[0]
    assert np.all(np.abs(counts - 100) < 40)
    evenly = ranks.decode(np.linspace(-1.0, 1.0, 10_000)[None], random)
    assert np.isin(evenly, values).all()
    assert abs(np.mean(evenly == 3600.0) - 0.4) < 0.01


def test_many_labels_share_one_level_by_their_frequency() -> None:
    random = np.random.default_rng(2)
    labels = np.array([f"s{number}" for number in range(160) for _ in range(160 - number)])
    levels = levels_of("service", labels, is_amount=False)
    assert levels.width == MAX_LEVELS + 1
    code = levels.encode(labels, random)
    assert np.array_equal(code.sum(axis=0), np.ones(len(labels)))
    back = levels.decode(code, random)
    common = code[-1] == 0
    assert np.array_equal(back[common], labels[common])
    assert set(back[~common]) <= set(labels[~common])


def test_unknown_amounts_stay_unknown_in_their_share() -> None:
    table = agents(400)
    size = np.where(np.arange(400) % 4 == 0, np.nan, table.continuous["input_mib"])
    table = AgentTable(table.conditions, table.categorical, {**table.continuous, "input_mib": size})
    encoding = fit_agent_encoding(table)
    back = encoding.decode(encoding.encode(table), table.conditions)
    assert np.array_equal(np.isnan(back.continuous["input_mib"]), np.isnan(size))
    assert list(back.categorical) == list(table.categorical)


def test_the_text_of_an_encoding_is_the_encoding() -> None:
    encoding = fit_agent_encoding(agents(300))
    assert AgentEncoding.from_json(encoding.to_json()) == encoding


def test_refusals_name_what_is_wrong() -> None:
    table = agents(300)
    encoding = fit_agent_encoding(table)
    with pytest.raises(PopulationError, match="too few"):
        fit_agent_encoding(table.take(np.arange(50)))
    with pytest.raises(PopulationError, match="scenario night"):
        encoding.encode_conditions(AgentConditions(np.array(["night"]), np.zeros(1)))
    strange = {**table.categorical, "service": np.full(300, "z")}
    with pytest.raises(PopulationError, match="300 values") as caught:
        encoding.encode(AgentTable(table.conditions, strange, table.continuous))
    assert "service: z" in caught.value.where
