"""The interface of populations: one way to fit, sample, save and load, whatever generates.

A `Population` is a pair of pure functions over encoded agents; `fit_population` and `sample_agents` put the encoding
around it, so that every method, baselines among them, sees the same numbers.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from logs_schema.errors import ProductError
from twin.arrays import load_structure, save_arrays
from twin.contracts import Array, PyTree
from twin.population.agents import AgentConditions, AgentTable
from twin.population.encoding import AgentEncoding, fit_agent_encoding
from twin.population.errors import PopulationError
from twin.population.training import OnEvaluation

ARRAYS, TEXT = "population.npz", "population.json"


class Training(NamedTuple):
    """What a method learns from; features first."""

    rows: np.ndarray  # [width, agents] float32
    conditions: np.ndarray  # [conditions, agents] float32
    unit: np.ndarray  # [agents] int, the same for rows of one agent and day
    on_evaluation: OnEvaluation | None = None
    checkpoint: Path | None = None  # of a training


class Population(NamedTuple):
    """A way to generate agents: pure functions of arrays."""

    name: str
    config: Any  # frozen dataclass of plain values
    # (key, encoding, training) -> parameters, what happened (plain values, kept with the model)
    fit: Callable[[Array, AgentEncoding, Training], tuple[PyTree, dict[str, Any]]]
    # (key, encoding, parameters, conditions [conditions, agents]) -> [width, agents]
    sample: Callable[[Array, AgentEncoding, PyTree, np.ndarray], np.ndarray]
    structure: Callable[[AgentEncoding], PyTree]  # a pytree shaped as the parameters, for loading


@dataclass(frozen=True)
class PopulationModel:
    """A fitted population.

    Attributes:
        population: The method.
        encoding: Of agents.
        parameters: Of the method; arrays.
        conditions: [agents] scenario and time of day of the training rows, for samples without conditions of their own.
        record: What happened while fitting; plain values.
    """

    population: Population
    encoding: AgentEncoding
    parameters: PyTree
    conditions: AgentConditions
    record: dict[str, Any] = field(default_factory=dict)


def fit_population(
    key: Array,
    population: Population,
    table: AgentTable,
    *,
    on_evaluation: OnEvaluation | None = None,
    checkpoint: Path | None = None,
) -> PopulationModel:
    """Learns the workload.

    Args:
        key: PRNG key; the same key gives the same bits.
        population: The method.
        table: Training rows, an agent each.
        on_evaluation: Called with (steps done, steps in all, figures) now and then.
        checkpoint: File (.npz) that keeps a training on the way; a second call with the same arguments goes on from it.

    Raises:
        PopulationError: Too few rows, nothing to generate, or training went astray.
    """
    encoding = fit_agent_encoding(table)
    if not encoding.columns:
        raise PopulationError(
            "every column is constant or follows from others: there is nothing to generate",
            where=f"{table.num_rows} training rows",
            advice="replay the arrivals, or take a log with more columns",
        )
    unit = np.arange(table.num_rows) if table.unit is None else table.unit
    training = Training(
        encoding.encode(table), encoding.encode_conditions(table.conditions), unit, on_evaluation, checkpoint
    )
    parameters, record = population.fit(key, encoding, training)
    constant = [rule.name for rule in encoding.derived if not rule.sources]
    follows = {rule.name: list(rule.sources) for rule in encoding.derived if rule.sources}
    record = {"rows": table.num_rows, "constant": constant, "derived": follows, **record}
    return PopulationModel(population, encoding, parameters, table.conditions, record)


def sample_agents(key: Array, model: PopulationModel, conditions: int | AgentConditions) -> AgentTable:
    """Generates agents.

    Args:
        key: PRNG key.
        model: The fitted population.
        conditions: Of every agent, or how many agents; then conditions are drawn among those of training.

    Raises:
        PopulationError: A scenario that training rows did not hold.
    """
    key_conditions, key_rows, key_decode = jax.random.split(key, 3)
    if isinstance(conditions, int):
        random = np.random.default_rng(seed_words(key_conditions))
        conditions = model.conditions.take(random.integers(0, len(model.conditions.scenario), conditions))
    encoded = model.encoding.encode_conditions(conditions)
    matrix = model.population.sample(key_rows, model.encoding, model.parameters, encoded)
    return model.encoding.decode(np.asarray(matrix), conditions, seed=seed_words(key_decode))


def save_population(model: PopulationModel, folder: Path) -> None:
    """Writes a model as one npz and one JSON file, without pickle."""
    folder.mkdir(parents=True, exist_ok=True)
    code = {name: place for place, name in enumerate(model.encoding.scenarios)}
    scenario = np.array([code[name] for name in model.conditions.scenario.tolist()], np.int32)
    save_arrays(
        folder / ARRAYS,
        {"parameters": model.parameters, "scenario": scenario, "day_fraction": model.conditions.day_fraction},
    )
    content = {
        "method": model.population.name,
        "config": asdict(model.population.config),
        "encoding": json.loads(model.encoding.to_json()),
        "record": model.record,
    }
    (folder / TEXT).write_text(json.dumps(content, indent=1, sort_keys=True), encoding="utf-8")


def load_population(
    folder: Path, methods: dict[str, Callable[[dict[str, Any]], Population]]
) -> PopulationModel:
    """Reads what `save_population` wrote.

    Args:
        folder: Where it was written.
        methods: Name -> method of a configuration; `twin.population.METHODS` holds all there are.

    Raises:
        ProductError: The files are missing, damaged, or of a method that is not among `methods`.
    """
    try:
        content = json.loads((folder / TEXT).read_text(encoding="utf-8"))
        method = methods[content["method"]]
        encoding = AgentEncoding.from_json(json.dumps(content["encoding"]))
        population = method(content["config"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProductError(
            f"cannot read the population: {error!r}",
            where=str(folder / TEXT),
            allowed=", ".join(methods),
            advice="fit it again with this version",
        ) from error
    like = {"parameters": population.structure(encoding), "scenario": 0, "day_fraction": 0}
    arrays = load_structure(folder / ARRAYS, like)
    conditions = AgentConditions(np.array(encoding.scenarios)[arrays["scenario"]], arrays["day_fraction"])
    return PopulationModel(population, encoding, arrays["parameters"], conditions, content["record"])


def seed_words(key: Array) -> list[int]:
    """A key as a seed of NumPy's generators."""
    return [int(word) for word in np.asarray(jax.random.key_data(key)).ravel()]
