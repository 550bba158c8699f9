"""Whether run times and waits depend on what the other nodes have to do.

Nodes of a rack that share its power, of a site that share a link, or all that share a storage slow each other: under a
policy that gathers requests there, runs take longer than any log of a policy that spreads them shows. Answers know the
node that was offered alone. Which nodes belong together no log says, so it is read off it: for the runs of a node

    residual = sum over the other nodes of (slope * requests running there as the run began) + scatter

with slopes from every second unit of the held-out days, drawn to zero by ridge regression, forecasts those of the
other units. Under forecasts of the right class these are uncorrelated with the residuals. What the node's own load, and
the last runs on the node and on all nodes say of the residual is taken off both: there are lines for that.

The same of waits, by the requests that wait on other nodes as one arrives: where inputs come over a link that nodes
share, or a dispatcher lets only so many begin, a request waits for others than those of its node.
"""

from typing import Literal

import numpy as np

from evaluation.certify.forecasting import Forecast

MOST_NODES = 64
"""With more nodes, the number of requests that run on all others is taken for those of each."""
EXPLAINED = 0.05
"""Share of the variance that loads are expected to explain: slopes are drawn to zero the more the smaller it is."""
LEAST_RUNS = 40
"""Of a node, without which its runs are left out."""


def by_load_elsewhere(
    score: np.ndarray, forecast: Forecast, lately: np.ndarray, *, waiting: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """[rows] scores, and what the load of other nodes says of them; NaN where unknown.

    Args:
        score: [rows] normal scores of the residuals, of mean zero on every node; NaN where unknown.
        forecast: Of the rows.
        lately: [others, rows] what else says something of the residual, NaN where nothing is known.
        waiting: Whether the load is what waits as the row arrives, and not what runs as it begins.
    """
    one, two = np.full(len(score), np.nan), np.full(len(score), np.nan)
    nodes = np.unique(forecast.node)
    known = np.isfinite(score) & np.isfinite(forecast.start_s)
    if len(nodes) < 2:
        return one, two
    running = waiting_on(nodes, forecast) if waiting else running_on(nodes, forecast)
    half = forecast.unit % 2 == 0
    for place, node in enumerate(nodes):
        here = np.flatnonzero(known & (forecast.node == node))
        if min(half[here].sum(), (~half[here]).sum()) < LEAST_RUNS:
            continue
        load = running[here].astype(float)
        others = np.delete(load, place, axis=1)
        if len(nodes) > MOST_NODES:
            others = others.sum(axis=1, keepdims=True)
        beside = np.column_stack([np.ones(len(here)), load[:, place], np.nan_to_num(lately[:, here]).T])
        cleaned = _without(beside, np.column_stack([score[here], others]))
        one[here] = cleaned[:, 0]
        two[here] = _forecast(cleaned[:, 1:], cleaned[:, 0], half[here])
    return one, two


def running_on(nodes: np.ndarray, forecast: Forecast) -> np.ndarray:
    """[rows, nodes] requests that run on each node as the row's run begins, itself not counted; 0 where it has none."""
    start_s, ends_s = forecast.start_s, forecast.ended_s if len(forecast.ended_s) else forecast.finish_s
    return _between(nodes, forecast.node, start_s, ends_s, np.nan_to_num(start_s, nan=-np.inf), side="right")


def waiting_on(nodes: np.ndarray, forecast: Forecast) -> np.ndarray:
    """[rows, nodes] requests that wait on each node as the row arrives, itself not counted."""
    return _between(
        nodes, forecast.node, forecast.arrival_s, forecast.start_s, forecast.arrival_s, side="left"
    )


def _between(
    nodes: np.ndarray,
    node: np.ndarray,
    from_s: np.ndarray,
    to_s: np.ndarray,
    at_s: np.ndarray,
    side: Literal["left", "right"],
) -> np.ndarray:
    """[rows, nodes] requests that are on each node between two instants of theirs at an instant [rows]; `side`: "right"
    where those whose second instant it is are no longer."""
    found = np.zeros((len(at_s), len(nodes)), np.int32)
    known = np.isfinite(from_s) & np.isfinite(to_s)
    for place, one in enumerate(nodes):
        here = known & (node == one)
        begun = np.searchsorted(np.sort(from_s[here]), at_s)
        found[:, place] = begun - np.searchsorted(np.sort(to_s[here]), at_s, side=side)
    return np.maximum(found, 0)


def _without(beside: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Columns [rows, columns] less what `beside` [rows, others] says of them by least squares."""
    return np.asarray(columns - beside @ np.linalg.lstsq(beside, columns, rcond=None)[0])


def _forecast(loads: np.ndarray, score: np.ndarray, half: np.ndarray) -> np.ndarray:
    """[rows] of each half of the rows by the slopes of the other one; loads [rows, nodes] of mean zero."""
    scale = loads.std(axis=0)
    loads = loads / np.where(scale > 0.0, scale, np.inf)
    found = np.zeros(len(score))
    for fitted, held in ((half, ~half), (~half, half)):
        drawn = loads.shape[1] / EXPLAINED * np.eye(loads.shape[1])
        gram = loads[fitted].T @ loads[fitted] + drawn
        found[held] = loads[held] @ np.linalg.solve(gram, loads[fitted].T @ score[fitted])
    return found
