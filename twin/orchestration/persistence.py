"""A twin of slot mode as files of a product's folder: the cluster, the settings, the tables of chance."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.records import with_tuples
from twin.arrays import load_structure, save_arrays
from twin.orchestration.edge_cloud import EdgeCloud
from twin.orchestration.fit import FittedCluster
from twin.orchestration.learned import ChanceTables
from twin.orchestration.settings import SETTINGS, as_facts, from_facts
from twin.placement.run_filter import RunDynamics
from twin.placement.types import Cluster

CLUSTER, ARRAYS, TABLES = "cluster.json", "cluster.npz", "chance.npz"
_OF_EDGE = tuple(name for name in EdgeCloud._fields if name not in ("config", "cluster"))
_NAMES = ("node_names", "sites", "scenarios", "services", "queues", "agents", "knows_week")
_DYNAMICS = "dynamics"
_NEVER = (
    "cold", "tide", "node_tide", "reaction", "scarce", "wakes", "hazard", "repeats", "awaits", "priorities",
    "disciplines", "unordered", "pace", "in_order", "permits", "concurrency", "timeouts", "drops_late", "wait_limit_s",
    "places", "kinds_by", "shared_waits",
)  # fmt: skip
_OF_CLUSTER = tuple(item.name for item in fields(Cluster) if item.name not in (*_NAMES, _DYNAMICS, *_NEVER))


def save_fitted(folder: Path, fitted: FittedCluster) -> None:
    """Writes a twin into a product's folder."""
    edge, cluster = fitted.edge, fitted.edge.cluster
    assert cluster.cold is None, "run times by slots start nothing cold"
    assert max(cluster.tide.variance, cluster.node_tide.variance) == 0.0, "nor have they tides"
    assert cluster.reaction is None, "nor does anybody refuse"
    assert not cluster.scarce, "nor does a request wait for anything beside cores and replicas"
    assert cluster.wakes is None, "nor do nodes sleep"
    assert not cluster.hazard, "nor lose what runs on them"
    assert cluster.repeats is None, "nor do clients try again"
    assert not cluster.awaits, "nor await their answers"
    assert cluster.priorities is None, "nor do queues go before others"
    assert cluster.disciplines is None, "nor do nodes start what waits but as it came"
    assert not cluster.unordered, "nor in no order"
    assert not cluster.shared_waits, "nor does a request wait for those of other nodes"
    assert cluster.pace is None, "nor do runs slow each other"
    assert not cluster.places, "nor has a node places"
    assert not any((cluster.in_order, cluster.permits, cluster.concurrency)), "nor wait for one another"
    assert not cluster.timeouts, "nor are runs cut off"
    assert not any((cluster.drops_late, cluster.wait_limit_s)), "nor what waits, but by the settings"
    assert not cluster.kinds_by, "nor do services have kinds"
    plain: dict[str, Any] = {name: getattr(cluster, name) for name in _NAMES}
    plain[_DYNAMICS] = asdict(cluster.dynamics)
    plain[SETTINGS] = as_facts(edge.config, fitted.frames)
    (folder / CLUSTER).write_text(json.dumps(plain, indent=1) + "\n")
    arrays = {
        "edge": {name: getattr(edge, name) for name in _OF_EDGE},
        "cluster": {name: np.asarray(getattr(cluster, name)) for name in _OF_CLUSTER},
    }
    save_arrays(folder / ARRAYS, arrays)
    save_arrays(folder / TABLES, fitted.tables)


def load_fitted(folder: Path) -> FittedCluster:
    """Reads it; ProductError where it is damaged."""
    plain = json.loads((folder / CLUSTER).read_text())
    slots, frames = from_facts(plain, str(folder / CLUSTER))
    structure = {"edge": dict.fromkeys(_OF_EDGE, 0), "cluster": dict.fromkeys(_OF_CLUSTER, 0)}
    arrays = load_structure(folder / ARRAYS, structure)
    facts = with_tuples({name: plain[name] for name in _NAMES})
    cluster = Cluster(**facts, **arrays["cluster"], dynamics=RunDynamics(**plain[_DYNAMICS]))
    edge = EdgeCloud(config=slots, cluster=cluster, **arrays["edge"])
    tables = load_structure(folder / TABLES, ChanceTables(*range(len(ChanceTables._fields))))
    return FittedCluster(edge, frames, ChanceTables(*tables))
