"""What benchmarks share: the time that runs take in turn, peak memory, and figures as lines or JSON."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax


def least_s(
    runs: Mapping[str, Callable[[], Any]], rounds: int = 3
) -> tuple[dict[str, float], dict[str, float]]:
    """Least wall and processor time of each run over several rounds, after one that compiles; every round takes each
    in turn, so that a busy moment of the machine falls on all of them."""
    for run in runs.values():
        jax.block_until_ready(run())
    wall, busy = (dict.fromkeys(runs, float("inf")) for _ in range(2))
    for _ in range(rounds):
        for name, run in runs.items():
            begun, worked = time.perf_counter(), time.process_time()
            jax.block_until_ready(run())
            wall[name] = min(wall[name], time.perf_counter() - begun)
            busy[name] = min(busy[name], time.process_time() - worked)
    return wall, busy


def peak_mib() -> float:
    """Peak resident memory of this process so far; `getrusage` would count the parent that forked it."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return float(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024.0


def show(figures: Mapping[str, float], *, as_json: bool) -> None:
    """Prints figures, a line each."""
    if as_json:
        print(json.dumps(figures, indent=1))
        return
    for name, value in figures.items():
        print(f"{name:50s} {value:14,.3f}")
