"""What agents accept, by the log: usually, and whether they answer by how they were served lately."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from logs_schema.calendar import DAY_S
from twin.placement.columns import amount, answers_of, index_of, instant_s, label_index, outcomes
from twin.placement.discontent import discontent_along, fit_reaction
from twin.placement.service_times import Acceptance, acceptances, offer_kind
from twin.placement.types import Cluster, Reaction


def fit_acceptance(
    rows: pa.Table, cluster: Cluster, node: np.ndarray, until_s: float
) -> tuple[Acceptance, Reaction | None]:
    """What scenarios and agents accepted in the training days.

    Args:
        rows: `requests` of the training days, sorted by arrival.
        cluster: Nodes and vocabularies.
        node: [rows] the decided node; -1 where the log does not name it.
        until_s: Seconds since 1970, at which outcomes are known.

    Returns:
        The probabilities, and how agents answer by how they were served (`discontent.fit_reaction`).
    """
    kind = np.full(len(rows), -1)
    if np.any(named := node >= 0):
        site = label_index(rows, "site", cluster.sites)[named]
        kind[named] = offer_kind(cluster.site_of_node[node[named]] == site, cluster.is_cloud[node[named]])
    accepted = answers_of(rows)
    scenario = label_index(rows, "scenario", cluster.scenarios)
    names = pc.fill_null(pc.cast(rows["agent"], pa.string()), "").to_numpy(zero_copy_only=False).astype(str)
    usual = acceptances(accepted, kind, scenario, names, len(cluster.scenarios))
    return usual, _reaction(
        rows, usual, np.where(kind >= 0, accepted, np.nan), kind, scenario, names, until_s
    )


def _reaction(
    rows: pa.Table,
    usual: Acceptance,
    accepted: np.ndarray,
    kind: np.ndarray,
    scenario: np.ndarray,
    names: np.ndarray,
    until_s: float,
) -> Reaction | None:
    """See `fit_reaction`; the log's outcomes as they are known at the end of training."""
    agent = np.unique(names, return_inverse=True)[1]
    agent = np.where(names == "", -1, agent)
    if not (np.any(accepted == 0.0) and np.any(agent >= 0)):
        return None  # nobody refuses: the log is not gone through
    chance = _usually(usual, rows["agent"], scenario)[np.arange(len(rows)), np.maximum(kind, 0)]
    arrival_s = instant_s(rows, "arrival")
    day = np.floor_divide(arrival_s, DAY_S).astype(np.int64)
    finish_s, status = outcomes(rows, until_s)
    deadline_s = amount(rows, "deadline_s", np.inf)
    discontent = discontent_along(agent, day, arrival_s, finish_s, status, deadline_s)
    return fit_reaction(accepted, chance, discontent, agent, day)


def acceptance_of(cluster: Cluster, agent: pa.Array | pa.ChunkedArray, scenario: np.ndarray) -> np.ndarray:
    """[OFFER_KINDS, requests] probability that an offer is accepted: the agent's own where known, else the scenario's.

    Args:
        cluster: With the probabilities.
        agent: [requests] names, null where hidden.
        scenario: [requests] index.
    """
    usual = Acceptance(cluster.agents, cluster.acceptance_of_agent, cluster.acceptance_of_scenario)
    return _usually(usual, agent, scenario).T.astype(np.float32)


def _usually(usual: Acceptance, agent: pa.Array | pa.ChunkedArray, scenario: np.ndarray) -> np.ndarray:
    """[requests, OFFER_KINDS], as `acceptance_of`."""
    row = index_of(agent, usual.agents, missing=-1)
    found = usual.of_scenario[scenario]
    found[row >= 0] = usual.of_agent[row[row >= 0]]
    return found
