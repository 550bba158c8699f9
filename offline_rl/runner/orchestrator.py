"""The orchestrator of a bundle: a plan by the log's tables and a network that corrects it. Needs NumPy only.

    orchestrator.json   names, lengths of frames, shape of the network
    orchestrator.npz    `tables/...` of `frame_view.OrchestrationTables` and `network/...`
    frames.npz          golden frames and what the original in JAX changed, to hold every copy against

They stand in a bundle beside the dispatcher, whose files are those of every bundle.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from logs_schema.errors import ProductError
from logs_schema.options import checked_path
from offline_rl.bundle import MAX_BYTES, read_arrays
from offline_rl.contract import read_json, refusing
from offline_rl.runner.frame_network import Chosen, NumpyOrchestrator
from offline_rl.runner.frame_plan import planned_changes
from offline_rl.runner.frame_view import FrameView, OrchestrationTables, advice_scores, frame_of
from offline_rl.runner.loading import network_while

PROBLEM = "orchestration"
FACTS, ARRAYS, FRAMES = "orchestrator.json", "orchestrator.npz", "frames.npz"
NUM_FRAMES = 64
"""Golden frames of a bundle."""
MOST_OF_NETWORK = 64 * 1024**2
"""Bytes of a network and of the loads by the time of day, at most."""
_TABLES, _NETWORK = "tables/", "network/"


@dataclass(frozen=True)
class OrchestratorFacts:
    """The contract between an orchestrator and its callers.

    Attributes:
        nodes, services, points: Names, in the order of all arrays; points are the sites with an access point.
        frame_s: Seconds from one decision to the next.
        num_past_frames: Frames whose loads a plan looks back on (`FrameView.busy`); fewer are taken, too.
        num_changes: Replicas that a decision may change.
        num_hops: Of the graph's encoder.
        mean: Whether its summaries are means.
        sharpness: Of the advice that the network corrects.
    """

    nodes: tuple[str, ...]
    services: tuple[str, ...]
    points: tuple[str, ...]
    frame_s: float
    num_past_frames: int
    num_changes: int
    num_hops: int
    mean: bool
    sharpness: float

    @property
    def most_bytes(self) -> int:
        """What the arrays may unpack to."""
        num_pairs = (len(self.services) + 1) * (len(self.nodes) + 1)
        return min(8 * len(OrchestrationTables._fields) * num_pairs + MOST_OF_NETWORK, MAX_BYTES)

    @property
    def most_bytes_of_frames(self) -> int:
        """What the golden frames may unpack to."""
        num_nodes, num_services, num_points = len(self.nodes), len(self.services), len(self.points)
        of_services = num_services * (5 * num_nodes + num_points + 2 * self.num_past_frames)
        return min(8 * NUM_FRAMES * (1 + num_nodes + of_services + 2 * self.num_changes), MAX_BYTES)


@dataclass(frozen=True)
class Orchestrator:
    """Decides which replicas change in a frame.

    Attributes:
        facts: See `OrchestratorFacts`.
        tables: What is known of the cluster.
        arrays: Of the network, by path.
        content_hash: Of the bundle.
    """

    facts: OrchestratorFacts
    tables: OrchestrationTables
    arrays: Mapping[str, np.ndarray]
    content_hash: str = ""

    def decide(self, view: FrameView) -> Chosen:
        """The changes of a frame; PolicyInputError where nothing can be decided from the input."""
        facts = self.facts
        advice = planned_changes(self.tables, view, facts.num_changes)
        network = NumpyOrchestrator(
            self.arrays,
            self.tables.site_of_node,
            len(self.tables.seat_of_site),
            facts.num_changes,
            facts.num_hops,
            facts.mean,
            rule=partial(advice_scores, facts.sharpness),
        )
        return network.decide(frame_of(self.tables, view, advice))


def write_orchestrator(folder: Path, orchestrator: Orchestrator, golden: Mapping[str, np.ndarray]) -> None:
    """Writes the three files into a bundle's folder."""
    (folder / FACTS).write_text(json.dumps(asdict(orchestrator.facts), indent=1) + "\n")
    arrays = {_TABLES + name: np.asarray(one) for name, one in orchestrator.tables._asdict().items()}
    arrays |= {_NETWORK + name: one for name, one in orchestrator.arrays.items()}
    np.savez(folder / ARRAYS, allow_pickle=False, **arrays)
    np.savez(folder / FRAMES, allow_pickle=False, **golden)


def load_orchestrator(
    folder: Path | str, *, expect: str | None = None, trust: Path | None = None
) -> Orchestrator:
    """Loads the orchestrator of a bundle, after checking all of it as `load_network` does.

    Raises:
        ProductError: As `load_network`; or the bundle has no orchestrator, or it does not decide as the original did.
    """
    folder = checked_path("folder", folder, "load_orchestrator")
    with network_while(folder, expect=expect, trust=trust) as dispatcher:
        if dispatcher.contract.problem != PROBLEM:
            raise ProductError(
                f"the bundle is of the problem '{dispatcher.contract.problem}', and has no orchestrator",
                where=str(folder),
                allowed=f"a bundle of '{PROBLEM}'",
                advice="train and export in a twin of a log by slots",
            )
        with refusing("the bundle's orchestrator cannot be read", folder):
            orchestrator = _read(folder, dispatcher.content_hash)
            golden = read_arrays(folder / FRAMES, orchestrator.facts.most_bytes_of_frames)
            replay_frames(orchestrator, golden, where=str(folder))
    return orchestrator


def replay_frames(orchestrator: Orchestrator, golden: Mapping[str, np.ndarray], *, where: str) -> None:
    """Compares an orchestrator with golden frames; ProductError where it changes something else."""
    for row in range(len(golden["node"])):
        view = FrameView(*(golden[name][row] for name in FrameView._fields))
        chosen = orchestrator.decide(view)
        if not all(np.array_equal(getattr(chosen, name), golden[name][row]) for name in Chosen._fields):
            raise ProductError(
                "the exported orchestrator does not decide as the original",
                where=f"{where}, golden frame {row}",
                advice="export the policy again",
            )


def _read(folder: Path, content_hash: str) -> Orchestrator:
    content: dict[str, Any] = read_json(folder / FACTS)
    names = {name: tuple(map(str, content[name])) for name in ("nodes", "services", "points")}
    facts = OrchestratorFacts(**content | names)
    arrays = read_arrays(folder / ARRAYS, facts.most_bytes)
    tables = OrchestrationTables(*(arrays[_TABLES + name] for name in OrchestrationTables._fields))
    network = {name.removeprefix(_NETWORK): one for name, one in arrays.items() if name.startswith(_NETWORK)}
    if tables.hosts.shape != (len(facts.services), len(facts.nodes)):
        raise ValueError(
            f"tables of {tables.hosts.shape}, names of {len(facts.services)}, {len(facts.nodes)}"
        )
    return Orchestrator(facts, tables, network, content_hash)
