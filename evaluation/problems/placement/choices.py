"""Whether a log leaves a scheduler any choice of node: without one nothing can be trained in its twin."""

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from logs_schema import Archive
from logs_schema.errors import ConfigError, first
from logs_schema.product import read_manifest
from logs_schema.tables import REQUESTS
from twin.placement.columns import MAX_VOCABULARY
from twin.placement.encoding import Encoding
from twin.placement.log_windows import refuse_undecided
from twin.placement.model import load_encoding

NO_CHOICE = "no_choice"
"""Key in the manifest of a twin without choices: why."""
OWN_NODES = "own_nodes"
"""Key in the manifest of a twin with queues that are bound to nodes: which."""
IN_ITS_PLACE = "to learn the order of a queue: schedtwin fit --problem ordering"
"""What such a log may be wanted for."""


def no_choice(archive: Archive, encoding: Encoding, days: Sequence[dt.date]) -> str:
    """Why no request of these days had a choice between nodes, in words; empty where one had.

    Raises:
        ConfigError: The archive lists no nodes, or no request names one.
    """
    names = encoding.cluster.node_names
    if not names:
        refuse_undecided(archive)
        raise ConfigError(
            "the archive lists no nodes, so there is nothing to place requests on",
            where=str(archive.path),
            allowed="two nodes or more",
            advice=f"import the log together with its nodes (nodes.csv); {IN_ITS_PLACE} --processors SIZE",
        )
    if len(names) < 2:
        num_nodes = len(archive.nodes())
        if encoding.by_class and num_nodes > 1:
            return (
                f"decisions name node classes, and all {num_nodes:,} nodes are of one, {names[0]}: nothing to choose "
                '([days] granularity = "node" names machines)'
            )
        return f"there is only one node, {names[0]}: nothing to choose"
    known, of_queue = encoding.node_of_name, encoding.nodes_of_queue
    for batch in archive.scan(REQUESTS.name, days=days, columns=["candidates", "queue"]):
        for candidates, queue in zip(
            batch["candidates"].to_pylist(), batch["queue"].to_pylist(), strict=True
        ):
            legal = {known[name] for name in candidates or () if name in known}
            if len(legal or of_queue.get(queue, ())) != 1:  # no list, or none of it known: every node
                return ""
    why = "by its queue" if of_queue else "column candidates"
    return f"every request of the training days had one legal node ({why}): nothing to choose"


def own_nodes(encoding: Encoding) -> str:
    """Which queues keep to nodes of their own by the log, in words; empty where none does."""
    total, names = encoding.cluster.num_nodes, encoding.cluster.node_names
    each = [
        f"{queue} to {names[nodes[0]] if len(nodes) == 1 else f'{len(nodes)} of {total}'}"
        for queue, nodes in sorted(encoding.nodes_of_queue.items())
    ]
    if not each:
        return ""
    return (
        f"no request lists candidates, and by the log queues are bound to nodes ({first(each)}): policies keep to "
        "that; a column candidates says otherwise"
    )


def taken_for_one(archive: Archive, encoding: Encoding, days: Sequence[dt.date]) -> str:
    """Of which labels the rarer ones are not told apart, in words; empty where all are."""
    cluster = encoding.cluster
    known = {"service": cluster.services, "scenario": cluster.scenarios, "queue": cluster.queues}
    full = [kind for kind, labels in known.items() if len(labels) > MAX_VOCABULARY]
    if not full:
        return ""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in full}
    for batch in archive.scan(REQUESTS.name, days=days, columns=full):
        for kind in full:
            for one in batch[kind].drop_null().value_counts():
                counts[kind][one["values"].as_py()] += one["counts"].as_py()
    told = []
    for kind, found in counts.items():
        rare = {label: number for label, number in found.items() if label not in known[kind]}
        if rare:
            share = sum(rare.values()) / found.total()
            told.append(f"{len(rare):,} of {len(found):,} {kind}s, with {share:.0%} of the requests")
    if not told:
        return ""
    return (
        f"rare labels are taken for one, 'unknown', beside the {MAX_VOCABULARY} most frequent: {'; '.join(told)}; "
        "where they fall into groups, name the groups in their place"
    )


def no_choice_in(twin: Path) -> str:
    """What `no_choice` said of the log of a twin."""
    said = read_manifest(twin, "twin").extra.get(NO_CHOICE, "")
    alone = load_encoding(twin).cluster.num_nodes < 2  # of a twin that says nothing of it
    return str(said) or ("there is only one node" if alone else "")


def untrainable(without: str) -> str:
    """What follows for a twin, in words."""
    return f"{without}, so nothing can be trained in this twin; {IN_ITS_PLACE}"


def refuse_no_choice(twin: Path) -> None:
    """ConfigError where the log of a twin leaves a scheduler no choice."""
    if without := no_choice_in(twin):
        raise ConfigError(
            f"this log leaves a scheduler no choice of node: {without}",
            where=str(twin),
            allowed="logs whose requests went to one of at least two legal nodes or node classes",
            advice=IN_ITS_PLACE,
        )
