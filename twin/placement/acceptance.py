"""What agents accept, by the log: usually, and whether they answer by how they were served lately."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from twin.placement.columns import amount, index_of, instant_s, label_index, refused
from twin.placement.discontent import discontent_along, fit_reaction
from twin.placement.service_times import Acceptance, acceptances, offer_kind
from twin.placement.types import COMPLETED, REJECTED, UNKNOWN, Cluster, Reaction

_DAY_S = 86_400.0


def fit_acceptance(
    rows: pa.Table, cluster: Cluster, node: np.ndarray, finish_s: np.ndarray
) -> tuple[Acceptance, Reaction | None]:
    """What scenarios and agents accepted in the training days.

    Args:
        rows: `requests` of the training days, sorted by arrival.
        cluster: Nodes and vocabularies.
        node: [rows] the decided node; -1 where the log does not name it.
        finish_s: [rows] seconds since 1970; NaN where not known.

    Returns:
        The probabilities, and how agents answer by how they were served (`discontent.fit_reaction`).
    """
    kind = np.full(len(rows), -1)
    if np.any(named := node >= 0):
        site = label_index(rows, "site", cluster.sites)[named]
        kind[named] = offer_kind(cluster.site_of_node[node[named]] == site, cluster.is_cloud[node[named]])
    accepted = pc.cast(pc.cast(rows["accepted"], pa.int8()), pa.float64()).to_numpy(zero_copy_only=False)
    scenario = label_index(rows, "scenario", cluster.scenarios)
    names = pc.fill_null(pc.cast(rows["agent"], pa.string()), "").to_numpy(zero_copy_only=False).astype(str)
    usual = acceptances(accepted, kind, scenario, names, len(cluster.scenarios))
    return usual, _reaction(
        rows, usual, np.where(kind >= 0, accepted, np.nan), kind, scenario, names, finish_s
    )


def _reaction(
    rows: pa.Table,
    usual: Acceptance,
    accepted: np.ndarray,
    kind: np.ndarray,
    scenario: np.ndarray,
    names: np.ndarray,
    finish_s: np.ndarray,
) -> Reaction | None:
    """See `fit_reaction`; the log's outcomes as they are known at the end of training."""
    listed = {name: row for row, name in enumerate(usual.agents)}
    named, agent = np.unique(names, return_inverse=True)
    row = np.array([listed.get(name, -1) for name in named.tolist()])[agent]
    each = np.maximum(kind, 0)
    chance = usual.of_scenario[scenario, each]
    if len(usual.agents):
        chance = np.where(row >= 0, usual.of_agent[np.maximum(row, 0), each], chance)
    agent = np.where(names == "", -1, agent)
    arrival_s, known = instant_s(rows, "arrival"), np.isfinite(finish_s)
    day = np.floor_divide(arrival_s, _DAY_S).astype(np.int64)
    status = np.where(refused(rows), REJECTED, np.where(known, COMPLETED, UNKNOWN))
    discontent = discontent_along(
        agent, day, arrival_s, np.where(known, finish_s, np.inf), status, amount(rows, "deadline_s", np.inf)
    )
    return fit_reaction(accepted, chance, discontent, agent, day)


def acceptance_of(cluster: Cluster, agent: pa.Array | pa.ChunkedArray, scenario: np.ndarray) -> np.ndarray:
    """[OFFER_KINDS, requests] probability that an offer is accepted: the agent's own where known, else the scenario's.

    Args:
        cluster: With the probabilities.
        agent: [requests] names, null where hidden.
        scenario: [requests] index.
    """
    row = index_of(agent, cluster.agents, missing=-1)
    found = cluster.acceptance_of_scenario[scenario]
    found[row >= 0] = cluster.acceptance_of_agent[row[row >= 0]]
    return found.T.astype(np.float32)
