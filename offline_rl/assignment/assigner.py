"""Runs an exported scheduler of the assignment problem with NumPy alone: from a round's costs to an edge a request.

    assigner.json  the network, how its logits are decoded, and what it was trained on
    policy.npz     its layers by name, `edge/dense_0/kernel`, ...; none where a search alone won the training
    policy.onnx    the same, where it was exported with onnx at hand (`offline_rl.assignment.onnx_priced`)
    golden.npz     rounds, the original's logits where there is a network, and the assignments found

An answer begins with insertion; then come insertion among the edges that the network finds likely, the best of samples
drawn by it, and a local search from the best of all, each where there is still time. So no answer is worse than
insertion, and the network decides where the search begins. Without a network it begins with insertion.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.errors import ProductError
from logs_schema.records import from_plain
from offline_rl.assignment.decoding import DecodingConfig, decode
from offline_rl.assignment.insertion import insertion
from offline_rl.assignment.known_edges import KnownEdges
from offline_rl.assignment.layers import Params
from offline_rl.assignment.local_search import LocalSearchConfig, improve
from offline_rl.assignment.onnx_priced import priced_from_graph
from offline_rl.assignment.priced import Pairs, pairs_of, priced_logits, priced_params
from offline_rl.bundle import ARRAYS, ASSIGNMENT_KIND, GOLDEN, read_arrays
from offline_rl.contract import refusing
from offline_rl.runner.loading import Backend
from offline_rl.signing import verified_while
from twin.assignment.checking import AssignmentError, refuse_bad_costs
from twin.assignment.objective import makespan_s
from twin.assignment.types import Costs, row_of
from twin.nested import by_path, nested

SETTING = "assigner.json"
PRICED, SEARCH = "priced", "search"
"""The network of `offline_rl.assignment.priced`, or none; CoRaiS's needs coordinates, which no question has."""
MIN_GOLDEN = 8
LOGIT_TOLERANCE = 1e-5
"""How far a logit may be from the original's, over the round's largest (1 at least): after training they are small
differences of large prices, whose rounding they carry."""
ANSWER_TOLERANCE = 0.01
"""How much worse an answer may be than the original's: rounding may lead a local search elsewhere."""
ORDER = 10.0
"""Rounds of so many times more, or fewer, requests or edges than in training are outside of it."""


@dataclass(frozen=True)
class AssignerSetting:
    """What a scheduler was trained for.

    Attributes:
        num_requests, num_edges: Of the rounds that it was trained on.
        network: `PRICED`, or `SEARCH` for none.
        num_samples, least_share: See `offline_rl.assignment.decoding.DecodingConfig`.
        trained_on: Free facts, plain JSON.
        edges: What its log says of edges.
    """

    num_requests: int
    num_edges: int
    network: str = PRICED
    num_samples: int = 32
    least_share: float = 0.02
    trained_on: Mapping[str, Any] = field(default_factory=dict)
    edges: KnownEdges = field(default_factory=KnownEdges)

    def __post_init__(self) -> None:
        whole = (self.num_requests, self.num_edges, self.num_samples)
        if self.network not in (PRICED, SEARCH) or not all(
            isinstance(one, int) and one >= 0 for one in whole
        ):
            raise ValueError(f"network {self.network!r} of {whole} requests, edges and samples")
        if min(whole[:2]) < 1 or not 0.0 < self.least_share <= 1.0:
            raise ValueError(f"rounds of {whole[:2]}, least_share {self.least_share}")


class Assigner:
    """A scheduler of many requests at once.

    Args:
        setting: What it was trained for.
        params: Of its network; none where the setting names none.
        content_hash: Of its bundle.
        network: What computes the logits; NumPy, with the parameters, where None.
    """

    def __init__(
        self,
        setting: AssignerSetting,
        params: Params,
        content_hash: str = "",
        network: Callable[[Pairs], np.ndarray] | None = None,
    ) -> None:
        self.setting, self.content_hash = setting, content_hash
        self._network = network or partial(priced_logits, params)

    def logits(self, costs: Costs) -> np.ndarray:
        """[*batch, Z, Q] of every request's edge."""
        return self._network(pairs_of(costs))

    def assign(
        self, costs: Costs, search: LocalSearchConfig | None = None, rng: np.random.Generator | None = None
    ) -> np.ndarray:
        """[Z] an edge for every request of one round.

        Args:
            costs: Of the round.
            search: What it may take; its time is that of the whole answer, insertion aside, which is always made.
            rng: Of samples and restarts; the same from one answer to the next where None.

        Raises:
            AssignmentError: The costs are none of a round.
        """
        begun_s = time.monotonic()
        refuse_bad_costs(costs)
        search, rng = search or LocalSearchConfig(), rng or np.random.default_rng(0)
        first = insertion(costs)
        if not len(first) or time.monotonic() - begun_s >= search.time_s:
            return first
        if self.setting.network == SEARCH:
            left_s = search.time_s - (time.monotonic() - begun_s)
            return improve(costs, first, replace(search, time_s=max(0.0, left_s)), rng)
        logits = self.logits(costs)
        left_s = search.time_s - (time.monotonic() - begun_s)
        config = DecodingConfig(
            self.setting.num_samples, self.setting.least_share, replace(search, time_s=max(0.0, left_s))
        )
        return decode(rng, costs, logits, config, first)

    def outside(self, num_requests: int, num_edges: int) -> dict[str, Any]:
        """How far a round is from those of training: `requests` and `edges` as multiples of theirs, `is_outside`."""
        times = {
            "requests": num_requests / self.setting.num_requests,
            "edges": num_edges / self.setting.num_edges,
        }
        is_outside = any(one > ORDER or one < 1.0 / ORDER for one in times.values())
        return {**times, "is_outside": is_outside}


def load_assigner(
    folder: Path | str, *, backend: Backend = "numpy", expect: str | None = None, trust: Path | None = None
) -> Assigner:
    """Loads a bundle, after checking every hash and replaying its golden rounds.

    Args:
        folder: The bundle.
        backend: What computes the network.
        expect: The content hash that it must have; None accepts any.
        trust: PEM file of the public key of whoever must have signed it; None: anybody.

    Raises:
        ProductError: No such bundle, another one than expected, unsigned, damaged, or it does not answer as the
            original.
    """
    folder = Path(folder)
    with verified_while(folder, ASSIGNMENT_KIND, expect=expect, trust=trust) as content_hash:
        setting = read_setting(folder)
        params = {} if setting.network == SEARCH else read_params(folder)
        network = priced_from_graph(folder) if backend == "onnx" else None
        assigner = Assigner(setting, params, content_hash, network)
        prove(assigner, folder)
    return assigner


def write_setting(folder: Path, setting: AssignerSetting) -> None:
    """Writes `assigner.json`."""
    (folder / SETTING).write_text(json.dumps(asdict(setting), indent=1) + "\n")


def read_setting(folder: Path) -> AssignerSetting:
    """Reads `assigner.json`; ProductError where it is none."""
    with refusing("the setting of the scheduler cannot be read", folder / SETTING):
        plain = json.loads((folder / SETTING).read_text())
        edges = from_plain(KnownEdges, plain.pop("edges", asdict(KnownEdges())))
        return AssignerSetting(**plain, edges=edges)


def read_params(folder: Path) -> Params:
    """Reads `policy.npz`; ProductError where it does not hold the network."""
    path, wanted = folder / ARRAYS, by_path(priced_params(np.random.default_rng(0)))
    arrays = read_arrays(path, max_bytes=sum(one.nbytes for one in wanted.values()))
    shapes = {name: (one.shape, one.dtype) for name, one in wanted.items()}
    if {name: (one.shape, one.dtype) for name, one in arrays.items()} != shapes or not all(
        np.isfinite(one).all() for one in arrays.values()
    ):
        raise ProductError(
            "the network is not the one that is known by this name, or its numbers are not finite",
            where=str(path),
            allowed=f"{len(wanted)} arrays of '{PRICED}'",
            advice="train and export the scheduler again",
        )
    return nested(arrays)


def prove(assigner: Assigner, folder: Path) -> None:
    """Holds a scheduler against the goldens in a folder; ProductError where it answers otherwise."""
    trouble = ""
    with refusing("the golden rounds cannot be read", folder / GOLDEN):
        golden = read_arrays(folder / GOLDEN)
        costs = Costs(*(golden[f"costs/{name}"] for name in Costs._fields))
        if len(golden["edge"]) < MIN_GOLDEN:
            raise ValueError(f"{len(golden['edge'])} rounds, {MIN_GOLDEN} or more are allowed")
        for row in range(len(golden["edge"])):
            logits = None if assigner.setting.network == SEARCH else golden["logits"][row]
            try:
                trouble = trouble or _difference(assigner, row_of(costs, row), logits, golden["edge"][row])
            except AssignmentError as error:
                raise ValueError(f"round {row}: {error}") from error
    if trouble:
        raise ProductError(
            "the exported scheduler does not answer as the original",
            where=f"{folder}: {trouble}",
            advice="export the scheduler again",
        )


def golden_search() -> LocalSearchConfig:
    """The search of golden answers: to the first local optimum, so no clock decides."""
    return LocalSearchConfig()


def _difference(assigner: Assigner, costs: Costs, logits: np.ndarray | None, edge: np.ndarray) -> str:
    """How an answer differs from the original's; empty where it does not."""
    if edge.shape != costs.source.shape:
        raise ValueError(f"edges {edge.shape} of a round of {costs.source.shape}")
    if logits is not None and (trouble := _other_logits(assigner.logits(costs), logits, costs)):
        return trouble
    original_s = float(makespan_s(costs, edge))
    own_s = float(makespan_s(costs, assigner.assign(costs, golden_search())))
    if not own_s <= original_s * (1.0 + ANSWER_TOLERANCE):
        return f"a round takes {own_s:.4g} s, the original's {original_s:.4g} s"
    return ""


def _other_logits(found: np.ndarray, logits: np.ndarray, costs: Costs) -> str:
    """How logits differ from the original's; empty where they do not."""
    if found.shape != logits.shape:
        raise ValueError(f"logits {logits.shape} of a round of {found.shape}")
    hosted = np.where(np.isfinite(costs.work_s), logits, 0.0)
    away = float(np.max(np.abs(found - logits)) / max(1.0, float(np.max(np.abs(hosted)))))
    if not away <= LOGIT_TOLERANCE:
        return f"a logit is {away:.2g} of the largest away, allowed {LOGIT_TOLERANCE:g}"
    return ""
