"""What usually happens, by the log: how long services run on the nodes they ran on, and what agents accept.

Speeds of nodes, affinities of services and preferences of agents are in no log, but in every run time and answer. A
network would have to find one number for every pair by trial; the log's mean is there at once, and is given to policies
and answers alike as a feature.

    log(run / expected) = overall + of the node + of the service on that node + scatter
    accepted            = of the kind of offer + of the scenario + of the agent + scatter

Each mean of `n` values counts `n / (n + within / between)`, `within` the variance inside the groups, `between` that of
their true means, both estimated from the same log: few values, or groups no more unlike than chance makes them, count
little (empirical Bayes; B. Efron and C. Morris, Stein's estimation rule and its competitors, 1973).

Runs that end keep updating the ratios (`twin.placement.run_filter`).
"""

from typing import Any, NamedTuple

import numpy as np

OFFER_KINDS = ("home", "elsewhere", "cloud")
"""Where an offer lies: at the site of arrival, at another one, in the cloud of another one."""
MAX_AGENTS = 10_000
"""Agents kept, the most frequent first."""
_DISTINCT = 0.02
"""An agent is kept whose acceptance of some kind of offer is this far from its scenario's."""
_LEAST_VARIANCE = 1e-300


class Acceptance(NamedTuple):
    """Probabilities that offers are accepted, each [*, OFFER_KINDS]."""

    agents: tuple[str, ...]
    of_agent: np.ndarray
    of_scenario: np.ndarray


def without_history(num_services: int, num_nodes: int, num_scenarios: int) -> dict[str, Any]:
    """The fields of a `Cluster` without any log: all runs as expected, all offers accepted."""
    return {
        "run_ratio": np.ones((num_services, num_nodes)),
        "run_variance": np.zeros((num_services, num_nodes)),
        "agents": (),
        "acceptance_of_agent": np.ones((0, len(OFFER_KINDS))),
        "acceptance_of_scenario": np.ones((num_scenarios, len(OFFER_KINDS))),
    }


def offer_kind(same_site: np.ndarray, is_cloud: np.ndarray) -> np.ndarray:
    """Index into `OFFER_KINDS`, of the arguments' common shape."""
    return np.where(same_site, 0, np.where(is_cloud, 2, 1))


class RunRatios(NamedTuple):
    """How long services run on nodes, over what is expected of them anywhere; leaves [services, nodes]."""

    ratio: np.ndarray  # > 0; 1 for everything if no run time is known
    variance: np.ndarray  # of what is known of its logarithm, around the node's


def run_ratios(
    service: np.ndarray, node: np.ndarray, run_s: np.ndarray, expected_s: np.ndarray, shape: tuple[int, int]
) -> RunRatios:
    """How long every service runs on every node, over what is expected of it anywhere.

    Args:
        service, node: [rows] indices; node -1 where the log does not name it.
        run_s: [rows] logged run time in seconds, NaN where unknown.
        expected_s: [rows] what was expected: requested, or the service's median.
        shape: Numbers of services and nodes.
    """
    known = (node >= 0) & (expected_s > 0.0) & (np.nan_to_num(run_s) > 0.0)
    if not known.any():
        return RunRatios(np.ones(shape), np.zeros(shape))
    logs = np.log(run_s[known] / expected_s[known])
    overall = float(logs.mean())
    of_node, _ = shrunk_means(logs - overall, node[known], shape[1])
    left = logs - overall - of_node[node[known]]
    of_pair, variance = shrunk_means(left, service[known] * shape[1] + node[known], shape[0] * shape[1])
    return RunRatios(np.exp(overall + of_node + of_pair.reshape(shape)), variance.reshape(shape))


def acceptances(
    accepted: np.ndarray, kind: np.ndarray, scenario: np.ndarray, agent: np.ndarray, num_scenarios: int
) -> Acceptance:
    """How readily scenarios and agents accept every kind of offer.

    Args:
        accepted: [rows] 1 where the offer was accepted, 0 where not, NaN where the log does not show it.
        kind: [rows] of `offer_kind`, -1 where the log does not show it.
        scenario: [rows] index.
        agent: [rows] names, "" where hidden.
        num_scenarios: Of the vocabulary.

    Returns:
        The probabilities; where a kind was never offered they are 1. Agents are listed only if they are known to differ
        from their scenario.
    """
    known = np.isfinite(accepted) & (kind >= 0)
    accepted, kind, scenario, agent = (each[known] for each in (accepted, kind, scenario, agent))
    named, index = np.unique(agent, return_inverse=True)
    of_scenario = np.ones((num_scenarios, len(OFFER_KINDS)))
    beside = np.zeros((len(named), len(OFFER_KINDS)))
    home = np.zeros(len(named), np.int64)
    home[index] = scenario
    for each in range(len(OFFER_KINDS)):
        rows = kind == each
        if not rows.any():
            continue
        overall = accepted[rows].mean()
        shifts, _ = shrunk_means(accepted[rows] - overall, scenario[rows], num_scenarios)
        of_scenario[:, each] = np.clip(overall + shifts, 0.0, 1.0)
        left = accepted[rows] - of_scenario[scenario[rows], each]
        beside[:, each], _ = shrunk_means(left, index[rows], len(named))
    of_agent = np.clip(of_scenario[home] + beside, 0.0, 1.0)
    distinct = np.any(np.abs(of_agent - of_scenario[home]) > _DISTINCT, axis=1) & (named != "")
    often = np.argsort(-np.bincount(index, minlength=len(named)), kind="stable")
    kept = np.sort(often[distinct[often]][:MAX_AGENTS])
    return Acceptance(tuple(named[kept].tolist()), of_agent[kept], of_scenario)


def rows_by_group(group: np.ndarray) -> list[np.ndarray]:
    """The rows of every group, each in their order."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(group[order])) + 1) if len(group) else []


def rows_of_each(group: np.ndarray, num_groups: int) -> list[np.ndarray]:
    """[groups] the rows of every group, each in their order; rows of a group below 0 are left out."""
    order = np.argsort(group, kind="stable")
    return np.split(order, np.searchsorted(group[order], np.arange(num_groups + 1)))[1:-1]


def blocks_of(group: np.ndarray, size: int) -> np.ndarray:
    """[rows] index of the block of a row: `size` consecutive rows of its group are one."""
    order = np.argsort(group, kind="stable")
    _, first, of_group = np.unique(group[order], return_index=True, return_inverse=True)
    number = np.empty(len(group), np.int64)
    number[order] = of_group * len(group) + (np.arange(len(group)) - first[of_group]) // size
    return np.unique(number, return_inverse=True)[1]


def shrunk_means(values: np.ndarray, group: np.ndarray, num_groups: int) -> tuple[np.ndarray, np.ndarray]:
    """[groups] the mean of every group, drawn to 0 by how little is known of it (0 where there are no values), and the
    variance of what is known of it."""
    count = np.bincount(group, minlength=num_groups)
    mean = np.bincount(group, values, minlength=num_groups) / np.maximum(count, 1)
    seen, nothing = count > 0, np.zeros(num_groups)
    freedom = len(values) - seen.sum()
    if freedom < 1:
        return nothing, nothing
    # Not 0, where all values of every group are the same: groups without any would have a mean of 0 / 0
    within = max(float(np.sum((values - mean[group]) ** 2)) / freedom, _LEAST_VARIANCE)
    # by moments: the mean square of the groups' means is their true variance and what scatter adds to it
    between = float(np.mean(mean[seen] ** 2 - within / count[seen]))
    if between <= 0.0:
        return nothing, nothing
    return np.asarray(mean * count / (count + within / between)), within / (count + within / between)


def median_by(group: np.ndarray, values: np.ndarray, num_groups: int) -> list[float]:
    """[groups] medians of the values that are known; of a group without any that of all, or 60."""
    overall = float(np.nanmedian(values)) if np.isfinite(values).any() else 60.0
    known = values[np.isfinite(values)]
    of_group = rows_of_each(group[np.isfinite(values)], num_groups)
    return [float(np.median(known[rows])) if len(rows) else overall for rows in of_group]
