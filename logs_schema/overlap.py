"""Overlap of decisions: for how many requests a log shows the outcome of another choice.

A column full of decisions is no evidence about other decisions where each service only ever ran in one place. What was
tried is counted for requests that are alike: of one site, service and queue. A choice is the class of the node, or the
node itself where all are of one class; where a log does not say to which node a request was offered, it is the one that
it ran on.
"""

from collections import Counter
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.capabilities import ENOUGH, Answer, Capability, percent

COLUMNS = ("site", "service", "queue", "offered_node", "ran_node")
_ALIKE = ["site", "service", "queue"]
ENABLES = "replay of other decisions, off-policy estimates"
LEAST_SHARE, LEAST_TIMES = 0.05, 5
"""A choice counts as tried by requests that are alike if so many took it; others than the commonest were tried if at
least this share of the requests took them, however many choices share it."""


@dataclass
class Overlap:
    """What requests of each site, service and queue were tried on, counted batch by batch.

    Attributes:
        tried: (site, service, queue) -> node -> requests.
        num_rows: Requests counted, those without a decision too.
    """

    tried: dict[tuple[str | None, ...], Counter[str]] = field(default_factory=dict)
    num_rows: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Counts the next rows of `requests` with `COLUMNS`."""
        self.num_rows += batch.num_rows
        *alike, offered, ran = (batch[name].cast(pa.string()) for name in COLUMNS)
        node = pc.coalesce(offered, ran)
        named = [*_ALIKE, "node"]
        decided = pa.table([*alike, node], names=named).filter(pc.is_valid(node))
        for row in decided.group_by(named).aggregate([([], "count_all")]).to_pylist():
            nodes = self.tried.setdefault(tuple(row[name] for name in _ALIKE), Counter())
            nodes[row["node"]] += row["count_all"]

    def finish(self, nodes: pa.Table) -> Capability:
        """The line of the capability matrix; `nodes` gives the class of each."""
        class_of = dict(zip(nodes["node_id"].to_pylist(), nodes["node_class"].to_pylist(), strict=True))
        by_class = len(set(class_of.values()) - {None}) > 1
        num_decided = sum(nodes.total() for nodes in self.tried.values())
        num_open = 0
        for by_node in self.tried.values():
            choices: Counter[str] = Counter()
            for node, count in by_node.items():
                choices[(by_class and class_of.get(node)) or node] += count
            others = sum(count for _, count in choices.most_common()[1:] if count >= LEAST_TIMES)
            if others and others >= LEAST_SHARE * choices.total():
                num_open += choices.total()
        if not num_decided:
            return Capability("overlap", "no", 0.0, "the log has no decisions", ENABLES)
        fraction, what = num_open / self.num_rows, "classes" if by_class else "nodes"
        alike = f"at least two {what} were tried by those of the same site, service and queue"
        answer: Answer = "yes" if fraction >= ENOUGH else "partial" if fraction else "no"
        return Capability(
            "overlap", answer, fraction, f"for {percent(fraction)} of requests {alike}", ENABLES
        )
