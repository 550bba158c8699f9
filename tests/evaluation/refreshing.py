"""What the tests of `schedtwin refresh` are made of: a log by days, a tiny job, policies made by hand."""

import json
from contextlib import AbstractContextManager
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest

from evaluation.commands.cli import main
from evaluation.simulator.logs import simulate
from logs_schema import Archive
from logs_schema.product import read_manifest
from logs_schema.progress import SilentProgress, Stage
from offline_rl.contract import NetworkFacts
from offline_rl.export import export_policy, original
from offline_rl.placement_contract import placement_contract
from twin.placement.encoding import Encoding
from twin.placement.features import NODE_FEATURES

THRESHOLDS = {
    "column_kl": 50.0, "pair_kl": 50.0, "auc": 1.0, "mmd": 50.0, "kolmogorov_smirnov": 1.0, "wasserstein": 50.0,
    "arrivals": 50.0, "offload_error": 1.0, "offload_correlation": -1.0, "calibration": 1.0, "coverage": 1.0,
    "horizon": 50.0, "rank_correlation": -1.0, "value_error": 50.0, "clone_surprise": 50.0, "behaviour_value": 1.0,
    "behaviour_response": 50.0, "acceptance_bias": 1.0, "acceptance_bias_by_node": 1.0, "wait_bias": 50.0,
    "run_bias_by_node": 50.0, "persistence": 1.0, "co_running": 1.0, "cold_start": 1.0, "elsewhere": 1.0,
}  # fmt: skip
"""A tiny twin passes these."""
TINY = """
[log]
format = "native"
paths = ["log"]
[days]
num_days = 2
num_steps = 64
[twin]
num_members = 2
hidden = [32]
num_steps = 400
evaluate_every = 50
[population]
kind = "none"
[train]
seeds = [0]
num_updates = 2
num_streams = 8
clone_updates = 25
clone_streams = 4
[judge]
copies = 2
num_fit_steps = 400
[intervals]
num_replicates = 200
[certify]
num_replicates = 200
max_rows = 500
"""
SCORER = NetworkFacts("scorer", (4,), identity=True, pooled=False)


class Killed(BaseException):
    """Nothing catches this, as nothing catches a kill."""


class KilledAt(SilentProgress):
    """Dies where a stage begins."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def stage(
        self, name: str, *, total: float | None = None, unit: str = ""
    ) -> AbstractContextManager[Stage]:
        if name == self.name:
            raise Killed
        return super().stage(name, total=total, unit=unit)


def created(products: dict[str, Path]) -> dict[str, str]:
    return {name: read_manifest(path).created for name, path in products.items()}


def command(folder: Path, settings: str, work: str | None = None) -> list[str]:
    """`schedtwin refresh` with `settings`.toml, in the work folder `work` (by default called as the settings)."""
    paths = {"--log": folder / "night", "--work": folder / (work or settings)}
    return [
        "refresh",
        str(folder / f"{settings}.toml"),
        *(str(word) for pair in paths.items() for word in pair),
    ]


def assert_fails_its_certificate(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends with the certificate's failure, and nothing is exported."""
    assert main([*words, "--json", "--no-progress"]) == 11
    told = json.loads(capsys.readouterr().out)
    assert (told["result"], told["exit_status"], told["new"], told["bundle"]) == (
        "certificate failed",
        11,
        None,
        None,
    )


def nightly(folder: Path, num_days: int) -> None:
    """`folder/log` and `folder/night` of a simulated system, in the project's own format."""
    simulate("small", num_days, "mix", 0, folder / "simulated")
    cut_last_day(Archive(folder / "simulated"), folder)


def cut_last_day(archive: Archive, folder: Path) -> None:
    """`folder/log`, all days but the last, and `folder/night`, the last one."""
    days = archive.days("requests")
    for name, part in (("log", days[:-1]), ("night", days[-1:])):
        (folder / name).mkdir()
        pq.write_table(archive.read("requests", days=part), folder / name / "requests.parquet")
    pq.write_table(archive.nodes(), folder / "log" / "nodes.parquet")


def configured(path: Path, thresholds: dict[str, float]) -> Path:
    """The tiny job with these thresholds, written to `path`."""
    lines = [f"{name} = {value}" for name, value in thresholds.items()]
    path.write_text("\n".join([TINY, "[certify.thresholds]", *lines, ""]))
    return path


def policy_by_backlog(out: Path, encoding: Encoding, *, seeks_load: bool) -> None:
    """A bundle that chooses the node with the least load (waiting, backlog), or with the most."""
    contract = placement_contract(encoding, SCORER)
    shapes = original(contract).init(jax.random.key(0))["params"]
    params = {
        layer: {part: np.zeros(array.shape, np.float32) for part, array in parts.items()}
        for layer, parts in shapes.items()
    }
    names = [feature.name for feature in NODE_FEATURES]
    for name in ("num_waiting", "backlog", "num_running"):
        params["choice"]["kernel"][names.index(name), 0] = 1.0
    params["score"]["kernel"][0, 0] = 1.0 if seeks_load else -1.0
    export_policy(
        {
            "params": {
                layer: {part: jnp.asarray(one) for part, one in parts.items()}
                for layer, parts in params.items()
            }
        },
        out,
        contract,
    )
