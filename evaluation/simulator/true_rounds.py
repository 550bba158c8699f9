"""Logged requests on the edges that they did not go to: exact counterfactuals from the simulated world.

In a world whose outcomes are drawn at the decision, a run is work over speed: what a request took on its node gives its
work, and with it what it would have taken on every other. Only its ways are drawn anew.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from evaluation.simulator.conditions import conditions
from evaluation.simulator.laws import SMALLEST_UNIFORM
from evaluation.simulator.truth import ground_truth
from evaluation.simulator.world import World
from evaluation.simulator.world_files import world_of
from logs_schema.calendar import DAY_S
from twin.assignment.ran_requests import RanRequests


class TrueTimes(NamedTuple):
    """Of every request on every edge; leaves [requests, edges]."""

    run_s: np.ndarray
    way_s: np.ndarray


def unknown_truth(facts: Mapping[str, Any]) -> str:
    """Why a log's world does not tell what requests would have taken elsewhere; empty where it does."""
    if "ground_truth" not in facts:
        return "the log was not simulated"
    if "behaviour" not in facts["ground_truth"]:
        return "the log is of another kind of simulation"
    world = world_of(ground_truth(facts))
    options = {
        "nodes that share cores, or agents that react": world.unfolds,
        "hidden changes of speed": world.slow_nodes.any or world.slow_sites.any,
        "runs that are killed, on one node and not on another": world.declared.kills,
        "errors in its reports": world.reports.any,
        "outputs, whose way is part of the logged time": world.has_output,
        "faults of links": bool(world.link_faults),
    }
    found = [name for name, there in options.items() if there]
    return f"its world has {', '.join(found)}" if found else ""


def true_times(
    facts: Mapping[str, Any], rows: RanRequests, edges: Sequence[str], rng: np.random.Generator
) -> TrueTimes:
    """What the requests of a simulated log would have taken everywhere; see `unknown_truth`.

    Args:
        facts: Of the archive.
        rows: Requests of its days, on `edges`.
        edges: Names of the nodes.
        rng: Of the ways.
    """
    truth = ground_truth(facts)
    world, first = world_of(truth), dt.date.fromisoformat(truth["first_day"])
    first_day = (first - dt.date(1970, 1, 1)).days
    node = np.array([[one.name for one in world.nodes].index(name) for name in edges])
    service = _places([one.name for one in world.services], rows.service)
    site = _places(world.sites, rows.site)
    run_s, way_s = np.empty((2, len(rows.edge), len(edges)))
    day = (rows.arrival_s // DAY_S).astype(int) - first_day
    for one in np.unique(day):
        mine = np.flatnonzero(day == one)
        today = conditions(world, float(one))
        speed = (today.speed * today.affinity)[service[mine]][:, node]
        run_s[mine] = (rows.seconds[mine] * speed[np.arange(len(mine)), rows.edge[mine]])[:, None] / speed
        link = today.link[site[mine]][:, node]
        input_mib = rows.sizes["input_mib"][mine, None]
        way_s[mine] = _noise(world, link, rng) * today.latency_s[link] + today.s_per_mib[link] * input_mib
    return TrueTimes(run_s, way_s)


def _noise(world: World, link: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    uniform = rng.uniform(SMALLEST_UNIFORM, 1.0, link.shape).astype(np.float32)
    uniform = np.minimum(uniform, np.nextafter(np.float32(1.0), np.float32(0.0)))  # rounded to 1: no end
    each = [
        np.asarray(kind.noise.quantile(jnp.asarray(uniform)))
        for kind in (world.local, world.cross_site, world.wan)
    ]
    found: np.ndarray = np.choose(link, each)
    return found


def _places(names: Sequence[str], labels: np.ndarray) -> np.ndarray:
    place = {name: index for index, name in enumerate(names)}
    return np.array([place[label] for label in labels.tolist()], int)
