"""A simulated cluster's log, read as plain rows by the runner and as arrays by training: the same episodes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.simulator.logs import simulate
from logs_schema import Archive
from offline_rl.runner import Request, load
from tests.offline_rl.bundles import BOUND, made_policy
from tests.offline_rl.retelling import episodes_of, follow_and_compare
from twin.placement.encoding import fit_encoding
from twin.placement.log_windows import encode_days
from twin.placement.run_filter import RunDynamics
from twin.placement.windows import select

COLUMNS = (
    "cpu_cores", "memory_gib", "gpus", "num_nodes", "site", "service", "scenario", "queue", "requested_run_s",
    "deadline_s", "input_mib", "candidates", "agent",
)  # fmt: skip


def told(row: dict[str, Any]) -> Request:
    """A logged row as a caller would describe it: what the log leaves out is left out."""
    return Request(**{name: value for name, value in row.items() if value is not None})


@pytest.mark.slow  # the quick one: `test_refresh_views`, a policy of another day's encoding
def test_episodes_of_a_preset_are_seen_and_decided_as_in_training(tmp_path: Path) -> None:
    simulate("small", 1, "mix", 0, tmp_path / "log")
    archive = Archive(tmp_path / "log")
    days = archive.days("requests")
    encoding = fit_encoding(archive, days)
    # Books learn earlier
    encoding = replace(encoding, cluster=replace(encoding.cluster, dynamics=RunDynamics()))
    windows = encode_days(archive, encoding, days, num_steps=64)
    windows = select(windows, np.linspace(0, windows.num_windows - 1, 6).astype(int))
    assert windows.num_overflow == 0
    params = made_policy(tmp_path / "bundle", encoding, BOUND)
    simulated = episodes_of(params, BOUND, encoding, windows)
    rows = archive.read("requests", days=days).select(COLUMNS).to_pylist()
    chosen, _ = follow_and_compare(
        load(tmp_path / "bundle"),
        encoding,
        windows,
        simulated,
        lambda step, window: told(rows[windows.row[step, window]]),
    )
    assert len(chosen) > 1
