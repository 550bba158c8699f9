"""A table of agents as one matrix: blocks of one-hot levels and of ranks, the same for every method of generation.

Feature axis first: rows of the matrix are features, columns are agents. What a method may condition on comes beside it:
the scenario one-hot and two harmonics of the time of day.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from logs_schema.errors import first
from logs_schema.records import with_tuples
from twin.contracts import Array
from twin.population.agents import AgentConditions, AgentTable
from twin.population.columns import MAX_LEVELS, Levels, Ranks, levels_of, ranks_of
from twin.population.errors import PopulationError

MIN_ROWS = 100
"""Fewer agents than this are refused: neither a joint law nor a held-out share can be distinguished from chance."""
ROWS_PER_COMBINATION = 5
KNOWN = " known"
NUM_HARMONICS = 2
NUM_PARTS = 12
"""Parts of the day that are distinguished at most."""
NUM_NEAR = 2000
"""Rows that characterise a time of day; fewer would show chance."""


class Block(NamedTuple):
    """Where a generated column stands in the matrix."""

    start: int
    width: int
    one_hot: bool


@dataclass(frozen=True)
class Derived:
    """A column that others determine: `value[position]` of the combination `key[position]` of their values."""

    name: str
    sources: tuple[str, ...]
    key: tuple[tuple[Any, ...], ...]
    value: tuple[Any, ...]
    is_amount: bool

    def decode(self, columns: dict[str, np.ndarray]) -> np.ndarray:
        """[rows] values; of a combination never seen, one that goes with the first source, else the first of all."""
        table = dict(zip(self.key, self.value, strict=True))
        near = (
            {key[:1]: value for key, value in zip(self.key, self.value, strict=True)} if self.sources else {}
        )
        keys = list(zip(*(columns[name].tolist() for name in self.sources), strict=True))
        num_rows = len(next(iter(columns.values())))
        if not self.sources:
            return np.array([self.value[0]] * num_rows)
        return np.array([table.get(key, near.get(key[:1], self.value[0])) for key in keys])


@dataclass(frozen=True)
class AgentEncoding:
    """How agents become columns of a matrix.

    Attributes:
        scenarios: Labels of the condition.
        columns: Generated columns, in the order of their blocks.
        derived: Columns that follow from others, constants among them.
        label_names, amount_names: Columns of the table, in its order.
    """

    scenarios: tuple[str, ...]
    columns: tuple[Levels | Ranks, ...]
    derived: tuple[Derived, ...]
    label_names: tuple[str, ...]
    amount_names: tuple[str, ...]

    @property
    def width(self) -> int:
        """Features of an agent."""
        return sum(column.width for column in self.columns)

    @property
    def num_conditions(self) -> int:
        """Features of a condition."""
        return len(self.scenarios) + 2 * NUM_HARMONICS

    @property
    def blocks(self) -> tuple[Block, ...]:
        """Where each generated column stands."""
        found, start = [], 0
        for column in self.columns:
            found.append(Block(start, column.width, isinstance(column, Levels)))
            start += column.width
        return tuple(found)

    def encode(self, table: AgentTable) -> np.ndarray:
        """float32 [width, rows].

        Raises:
            PopulationError: A value that training rows did not hold and for which there is no rest.
        """
        random = np.random.default_rng([0, 0xE4C0])
        values = _with_known(table, self)
        return np.concatenate([column.encode(values[column.name], random) for column in self.columns])

    def encode_conditions(self, conditions: AgentConditions) -> np.ndarray:
        """float32 [num_conditions, rows]: scenario one-hot, then cosine and sine of the time of day.

        Raises:
            PopulationError: A scenario that training rows did not hold.
        """
        unseen = sorted(set(conditions.scenario.tolist()) - set(self.scenarios))
        if unseen:
            raise PopulationError(
                f"no training row had the scenario {first(unseen)}",
                where="conditions of the sample",
                allowed=", ".join(self.scenarios),
                advice="name a known scenario, or fit on days that hold this one",
            )
        one_hot = conditions.scenario[None] == np.array(self.scenarios)[:, None]
        angle = 2.0 * np.pi * np.arange(1, NUM_HARMONICS + 1)[:, None] * conditions.day_fraction[None]
        return np.concatenate([one_hot, np.cos(angle), np.sin(angle)]).astype(np.float32)

    def scenario_codes(self, conditions: np.ndarray) -> np.ndarray:
        """[rows] place in `scenarios` of encoded conditions."""
        return np.argmax(conditions[: len(self.scenarios)], axis=0)

    def day_fraction(self, conditions: np.ndarray) -> np.ndarray:
        """[rows] time of day in [0, 1) of encoded conditions."""
        cosine, sine = conditions[[len(self.scenarios), len(self.scenarios) + NUM_HARMONICS]]
        return np.asarray(np.arctan2(sine, cosine) / (2.0 * np.pi) % 1.0)

    def cells(self, conditions: np.ndarray) -> np.ndarray:
        """[rows] scenario times `NUM_PARTS` plus part of the day, of encoded conditions."""
        part = (self.day_fraction(conditions) * NUM_PARTS).astype(int)
        return self.scenario_codes(conditions) * NUM_PARTS + np.minimum(part, NUM_PARTS - 1)

    def turned(self, conditions: Array, days: Array) -> Array:
        """Encoded conditions [num_conditions, rows] with the times of day moved by `days` [rows]."""
        first = len(self.scenarios)
        cosine, sine = conditions[first : first + NUM_HARMONICS], conditions[first + NUM_HARMONICS :]
        angle = 2.0 * jnp.pi * jnp.arange(1, NUM_HARMONICS + 1)[:, None] * days[None]
        turn = jnp.cos(angle), jnp.sin(angle)
        moved = cosine * turn[0] - sine * turn[1], sine * turn[0] + cosine * turn[1]
        return jnp.concatenate([conditions[:first], *moved])

    def decode(
        self, matrix: np.ndarray, conditions: AgentConditions, *, seed: Sequence[int] = (0,)
    ) -> AgentTable:
        """The agents that a matrix [width, rows] stands for."""
        random = np.random.default_rng([*seed, 0xDEC0])
        found: dict[str, np.ndarray] = {"scenario": conditions.scenario}
        for column, block in zip(self.columns, self.blocks, strict=True):
            found[column.name] = column.decode(matrix[block.start : block.start + block.width], random)
        for rule in self.derived:
            found[rule.name] = rule.decode(found)
        for name in self.amount_names:
            if name + KNOWN in found:
                found[name] = np.where(found[name + KNOWN] == "yes", found[name], np.nan)
        return AgentTable(
            conditions,
            {name: found[name].astype(str) for name in self.label_names},
            {name: found[name].astype(float) for name in self.amount_names},
        )

    def to_json(self) -> str:
        """The encoding as JSON text; `from_json` reads it back."""
        columns = [{"kind": type(column).__name__, **asdict(column)} for column in self.columns]
        content = {
            "scenarios": self.scenarios,
            "columns": columns,
            "derived": [asdict(rule) for rule in self.derived],
            "label_names": self.label_names,
            "amount_names": self.amount_names,
        }
        return json.dumps(content, indent=1, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> "AgentEncoding":
        """The encoding that `to_json` wrote."""
        content = json.loads(text)
        columns = []
        for entry in content["columns"]:
            kind = {"Levels": Levels, "Ranks": Ranks}[entry.pop("kind")]
            columns.append(kind(**with_tuples(entry)))
        derived = []
        for entry in content["derived"]:
            entry["key"] = tuple(tuple(key) for key in entry["key"])
            derived.append(Derived(**with_tuples(entry)))
        names = {name: tuple(content[name]) for name in ("scenarios", "label_names", "amount_names")}
        return AgentEncoding(columns=tuple(columns), derived=tuple(derived), **names)


def fit_agent_encoding(table: AgentTable) -> AgentEncoding:
    """Decides how every column is written, from the training rows.

    Raises:
        PopulationError: Fewer than `MIN_ROWS` rows.
    """
    if table.num_rows < MIN_ROWS:
        raise PopulationError(
            f"{table.num_rows} rows of agents are too few to learn a population from",
            where="training rows",
            allowed=f"at least {MIN_ROWS}",
            advice="take more days",
        )
    values = _with_known(table, None)
    sources: dict[str, np.ndarray] = {"scenario": table.conditions.scenario}
    columns: list[Levels | Ranks] = []
    derived: list[Derived] = []
    for name, column in values.items():
        is_amount = name in table.continuous
        rule = _rule(name, column, sources, is_amount)
        if rule is not None:
            derived.append(rule)
            continue
        if is_amount and len(np.unique(column)) > MAX_LEVELS:
            columns.append(ranks_of(name, column))
        else:
            columns.append(levels_of(name, column, is_amount=is_amount))
            sources[name] = column
    scenarios = tuple(np.unique(table.conditions.scenario).tolist())
    return AgentEncoding(
        scenarios, tuple(columns), tuple(derived), tuple(table.categorical), tuple(table.continuous)
    )


def near_share(num_rows: int) -> float:
    """Share of the day, or of the rows, that counts as one time of day: with few rows, more than a part."""
    return float(min(1.0, max(1.0 / NUM_PARTS, NUM_NEAR / num_rows)))


def _with_known(table: AgentTable, encoding: AgentEncoding | None) -> dict[str, np.ndarray]:
    """Columns to encode, labels first; an amount that is unknown here and there gets a label that marks where."""
    labels, amounts = dict(table.categorical), {}
    for name, column in table.continuous.items():
        known = np.isfinite(column)
        amounts[name] = np.where(known, column, np.median(column[known]) if known.any() else 0.0)
        flagged = (
            not known.all()
            if encoding is None
            else any(one.name == name + KNOWN for one in (*encoding.columns, *encoding.derived))
        )
        if flagged:
            labels[name + KNOWN] = np.where(known, "yes", "no")
    return {**labels, **amounts}


def _rule(name: str, column: np.ndarray, sources: dict[str, np.ndarray], is_amount: bool) -> Derived | None:
    """How the column follows from none, one or two of the sources, if it does in every training row."""
    found, code = np.unique(column, return_inverse=True)
    if len(found) == 1:
        return Derived(name, (), ((),), (found[0].item(),), is_amount)
    coded = {one: np.unique(values, return_inverse=True) for one, values in sources.items()}
    for names in [(one,) for one in sources] + list(combinations(sources, 2)):
        key = np.zeros(len(column), np.int64)
        for one in names:
            key = key * len(coded[one][0]) + coded[one][1]
        leader = np.unique(key, return_index=True)[1]
        num_pairs = len(np.unique(key * len(found) + code))
        if num_pairs == len(leader) and num_pairs * ROWS_PER_COMBINATION <= len(column):
            keys = tuple(zip(*(sources[one][leader].tolist() for one in names), strict=True))
            return Derived(name, names, keys, tuple(found[code[leader]].tolist()), is_amount)
    return None
