"""The capability matrix: what a log can support, and what it cannot, found in its data.

A capability is the share of requests for which the log has the columns it needs, unless the importer's `limits`
(`logs_schema.formats.describing`) mark it as unsupported although the columns are filled.
Whatever a log does not support is later reported as *not applicable*, never invented.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.errors import counted
from logs_schema.formats.pool_size import guesses
from logs_schema.log_days import SHIFTS_DAYS, LogDays

Answer = Literal["yes", "partial", "no"]
ENOUGH = 0.999


@dataclass(frozen=True)
class Capability:
    """One line of the matrix.

    Attributes:
        name: What the log may support.
        answer: Yes, partial or no.
        fraction: Share of requests for which the log has it, 0 to 1.
        reason: Why, in words.
        enables: What it makes possible: metrics, problems, methods.
    """

    name: str
    answer: Answer
    fraction: float
    reason: str
    enables: str


@dataclass(frozen=True)
class Question:
    """A capability that columns of `requests` answer: any of `columns` being known counts."""

    name: str
    columns: tuple[str, ...]
    enables: str


QUESTIONS = (
    Question("decisions", ("offered_node", "ran_node"), "behaviour cloning, the history baseline"),
    Question("candidates", ("candidates",), "legality by affinity and exclusion rules"),
    Question("propensities", ("propensity",), "importance sampling"),
    Question("true_waits", ("start",), "waits, bounded slowdown, learned waits"),
    Question("run_times", ("finish", "run_s"), "learned run times, occupancy"),
    Question("requested_run_times", ("requested_run_s",), "overruns, bounded slowdown of the request"),
    Question("outcomes", ("status",), "throughput of completed requests"),
    Question("agents", ("agent",), "the population of agents, Jain fairness"),
    Question("answers", ("accepted",), "accepted ratio"),
    Question("sessions", ("session",), "agents that return or leave"),
    Question("scenarios", ("scenario",), "agents per scenario"),
    Question("services", ("service",), "replicas, affinity to services"),
    Question("deadlines", ("deadline_s",), "on-time throughput"),
    Question("transfers", ("input_mib",), "transfer delays between sites"),
)
SAMPLE_TABLES = {
    "node_samples": "measured load of nodes",
    "replicas": "the orchestration problem",
    "deployment_samples": "the autoscaling problem",
}
COLUMNS = tuple(dict.fromkeys(name for question in QUESTIONS for name in question.columns))


@dataclass
class Coverage:
    """For how many requests each question is answered, counted batch by batch.

    Attributes:
        num_rows: Requests counted.
        num_known: Requests that answer, per capability.
    """

    num_rows: int = 0
    num_known: dict[str, int] = field(default_factory=lambda: {question.name: 0 for question in QUESTIONS})

    def add(self, batch: pa.RecordBatch) -> None:
        """Counts the next rows of `requests` with `COLUMNS`."""
        self.num_rows += batch.num_rows
        for question in QUESTIONS:
            known = pa.scalar(False)
            for name in question.columns:
                known = pc.or_(known, _is_given(name, batch))
            self.num_known[question.name] += pc.sum(known).as_py() or 0 if batch.num_rows else 0

    def fraction(self, name: str) -> float:
        """Share of requests that answer the question, 0 to 1; 0 for an empty log."""
        return self.num_known[name] / self.num_rows if self.num_rows else 0.0


def _is_given(name: str, batch: pa.RecordBatch) -> pa.Array:
    """Whether each value is given: not null, a status not `unknown`, an answer or that status, a finish with its start,
    which tells the run time."""
    if name == "status":
        return pc.not_equal(batch[name].cast(pa.string()), "unknown").fill_null(False)
    given = pc.is_valid(batch[name])
    if name == "accepted":  # a status may say so, too
        is_rejected = pc.equal(batch["status"].cast(pa.string()), "rejected").fill_null(False)
        return pc.or_(given, is_rejected)
    if name == "start":
        return pc.or_(given, _implies_start(batch))
    return pc.and_(given, pc.is_valid(batch["start"])) if name == "finish" else given


def _implies_start(batch: pa.RecordBatch) -> pa.Array:
    """Whether finish and run time say when a request began, but for its arrival (see `implied_times`)."""
    return pc.and_(pc.is_valid(batch["finish"]), pc.greater(batch["run_s"], 0.0).fill_null(False))


def capability_matrix(
    coverage: Coverage,
    nodes: pa.Table,
    days: LogDays,
    sample_rows: Mapping[str, int],
    facts: Mapping[str, Any],
    overlap: Capability,
) -> tuple[Capability, ...]:
    """Answers every question about a log.

    Args:
        coverage: How many requests have each column.
        nodes: The `nodes` table.
        days: The log's days.
        sample_rows: Rows of the other tables by name.
        facts: Facts from the importer; `limits` maps a capability to the reason why it is not supported.
        overlap: How far the log has tried more than one choice (`logs_schema.overlap`).
    """
    limits = dict(facts.get("limits", {}))
    limits |= {"overlap": limits["decisions"]} if "decisions" in limits else {}
    lines: list[Capability] = []
    for question in QUESTIONS:
        fraction = coverage.fraction(question.name)
        reason = _share(fraction, question.name)
        lines.append(Capability(question.name, _answer(fraction), fraction, reason, question.enables))
    lines.insert(1, overlap)
    lines += [_node_capacities(nodes, set(guesses(facts))), _tiers(nodes), _days(days)]
    for name, enables in SAMPLE_TABLES.items():
        rows = sample_rows.get(name, 0)
        reason = f"{rows:,} rows" if rows else "the log has no such table"
        lines.append(Capability(name, "yes" if rows else "no", float(rows > 0), reason, enables))
    return tuple(_limited(line, limits.get(line.name)) for line in lines)


def _limited(line: Capability, reason: str | None) -> Capability:
    return line if reason is None else Capability(line.name, "no", line.fraction, reason, line.enables)


def _answer(fraction: float) -> Answer:
    if fraction >= ENOUGH:
        return "yes"
    return "partial" if fraction > 0 else "no"


def _share(fraction: float, name: str) -> str:
    if fraction == 0:
        return "not in the log"
    if name == "candidates" and fraction < ENOUGH:
        return f"restricted for {percent(fraction)} of requests, elsewhere any node or unknown"
    return "known for every request" if fraction >= ENOUGH else f"known for {percent(fraction)} of requests"


def percent(fraction: float) -> str:
    """A share in per cent, with as many digits as keep it from reading as none or all."""
    if fraction in (0, 1) or 0.01 <= fraction <= 0.99:
        return f"{100 * fraction:.0f} %"
    return "under 0.1 %" if fraction < 0.001 else f"{min(100 * fraction, 99.9):.1f} %"


def _node_capacities(nodes: pa.Table, guessed: Set[str]) -> Capability:
    enables = "legality by capacity, exact bookkeeping, utilisation"
    if not nodes.num_rows:
        return Capability("node_capacities", "no", 0.0, "no inventory of nodes", enables)
    classes = {name for name in nodes["node_class"].to_pylist() if name is not None}
    memory = 1 - nodes["memory_gib"].null_count / nodes.num_rows
    virtual = any(nodes["virtual"].to_pylist())
    pools = "one pool" if nodes.num_rows == 1 else f"{nodes.num_rows:,} pools"
    reason = (
        f"{pools} of unnamed machines"
        if virtual
        else f"{counted(nodes.num_rows, 'node')} of {'one class' if len(classes) < 2 else f'{len(classes):,} classes'}"
    )
    if memory < ENOUGH:
        reason += ", memory unknown" if memory == 0 else f", memory known for {percent(memory)}"
    is_guess = [node in guessed for node in nodes["node_id"].to_pylist()]
    num_guessed = sum(is_guess)
    cores = zip(nodes["cpu_cores"].to_pylist(), is_guess, strict=True)
    num_without = sum(not amount and not guess for amount, guess in cores)
    for count, what in ((num_guessed, "guessed from use"), (num_without, "with 0 cores")):
        reason += f", {count:,} {what}" if count else ""
    fraction = 1 - (num_guessed + num_without) / nodes.num_rows
    if num_without == nodes.num_rows:
        return Capability("node_capacities", "no", 0.0, reason, enables)
    if fraction < 1:
        return Capability("node_capacities", "partial", fraction, reason, enables)
    return Capability("node_capacities", "yes", 1.0, reason, enables)


def _tiers(nodes: pa.Table) -> Capability:
    tiers = sorted({tier for tier in nodes["tier"].to_pylist() if tier is not None})
    sites = set(nodes["site"].to_pylist())
    enables = "offload ratio (ran away from the home site)"
    if len(sites) < 2:
        return Capability("tiers", "no", 0.0, "one site" if sites else "no inventory of nodes", enables)
    return Capability("tiers", "yes", 1.0, f"{len(sites)} sites, tiers {' and '.join(tiers)}", enables)


def _days(days: LogDays) -> Capability:
    possible = {name: days.training_days(shift) for name, shift in SHIFTS_DAYS.items()}
    answered = sum(num_days > 0 for num_days in possible.values())
    reason = (
        f"{days.num_dense_days} dense days; a test day {', '.join(possible)} later leaves "
        f"{', '.join(map(str, possible.values()))} to train on"
    )
    answer: Answer = "yes" if answered == len(possible) else "partial" if answered else "no"
    return Capability("days", answer, answered / len(possible), reason, "time-shifted comparison")
