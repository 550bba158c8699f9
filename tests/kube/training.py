"""A policy for the trial's own nodes and pods, from the decision log of its shadow phase, by the project's commands."""

import csv
from pathlib import Path

from evaluation.commands.cli import main
from tests.kube.trial import NODES

TINY = """
[days]
num_days = 1
num_steps = 32
[twin]
num_members = 2
hidden = [16]
num_steps = 100
evaluate_every = 20
[population]
kind = "none"
[train]
seeds = [0]
num_updates = 1
num_streams = 8
clone_updates = 50
clone_streams = 4
tuning_streams = 0
[shifts]
shifts = "0d"
"""
POLICY = "expected_on_time"


def trained_on(log: Path, work: Path) -> Path:
    """The bundle of a policy that was learned from a decision log; all products stay in `work`."""
    work.mkdir()
    with (work / "nodes.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("node_id", "site", "tier", "cpu_cores", "memory_gib"))
        rows.writerows((name, "zone-a", "edge", cores, 32) for name, (cores, _) in NODES.items())
    (work / "tiny.toml").write_text(TINY)
    archive, twin, policy, bundle = (work / name for name in ("archive", "twin", "policy", "bundle"))
    with_config = ("--config", work / "tiny.toml")
    for command in (
        ("import", "native", work / "nodes.csv", log / "requests", "--out", archive),
        ("fit", archive, *with_config, "--problem", "placement", "--out", twin),
        ("train", twin, *with_config, "--force", "--out", policy),
        ("export", policy, "--policy", POLICY, "--out", bundle),
    ):
        assert main([*map(str, command), "--no-progress"]) == 0, command
    return bundle
