"""What decisions call the machines of a log: by themselves, or by classes of like ones."""

from collections import defaultdict

import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.errors import ConfigError, first

MOST_MACHINES = 64
"""Of more machines decisions name classes, where the log has them."""


def wants_classes(nodes: pa.Table, rows: pa.Table) -> bool:
    """Whether decisions name classes where nothing else is wanted: requests span several machines, or there are many.

    Args:
        nodes: The inventory.
        rows: Requests with `num_nodes`.
    """
    spread = pc.max(rows["num_nodes"]).as_py()
    has_classes = nodes["node_class"].null_count == 0
    return has_classes and (len(nodes) > MOST_MACHINES or (spread is not None and spread > 1))


def class_names(nodes: pa.Table, *named: pa.ChunkedArray) -> list[str]:
    """[machines] what decisions call each machine where they name classes.

    By its class, and by its site as well, `small@site-0`, where the class stands at several (by its tier, where it has
    several of them at one site): what is at home, and what in the cloud, depends on it.

    Args:
        nodes: The inventory.
        named: Columns of nodes and classes that requests name; a class among them is one wherever it stands.

    Raises:
        ConfigError: A machine has no class.
    """
    machines, classes = nodes["node_id"].to_pylist(), nodes["node_class"].to_pylist()
    if without := [machine for machine, one in zip(machines, classes, strict=True) if one is None]:
        raise ConfigError(
            "decisions cannot name the classes of nodes: some have none",
            where=first(without),
            allowed="a node_class for every node",
            advice='complete nodes, or leave [days] granularity at "auto"',
        )
    own = {name for column in named for name in pc.unique(column).to_pylist()}
    places = list(zip(classes, nodes["site"].to_pylist(), nodes["tier"].to_pylist(), strict=True))
    sites, tiers = defaultdict[str, set](set), defaultdict[tuple, set](set)
    for one, site, tier in places:
        sites[one].add(site)
        tiers[one, site].add(tier)
    return [
        one
        if one in own
        else "@".join([one, *[site] * (len(sites[one]) > 1), *[tier] * (len(tiers[one, site]) > 1)])
        for one, site, tier in places
    ]
