"""Peak memory and speed of importing and scanning a large archive.

    python -m tests.benchmarks.bench_archive [--rows 20000000] [--days 7] [--order sorted|shuffled] [--json]

A native Parquet file is written piece by piece, imported, and scanned; each step runs in a process of its
own, whose peak resident memory (VmHWM) is read when it is done. The scan is compared with a bare pyarrow loop
over
the row groups of the same files and columns. Targets: both peaks at most 600 MB, speed ratio at least 0.5.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from logs_schema import Archive
from logs_schema.importing import import_log
from tests.benchmarks.timing import peak_mib

PEAK_TARGET_MB = 600
RATIO_TARGET = 0.5
PIECE_ROWS = 250_000
DAY_US = 86_400_000_000
COLUMNS = ("arrival", "service", "agent", "cpu_cores", "start", "finish")


def generate(file: Path, num_rows: int, num_days: int, order: str) -> None:
    generator = np.random.default_rng(0)
    writer = None
    for first in range(0, num_rows, PIECE_ROWS):
        rows = piece(generator, first, min(PIECE_ROWS, num_rows - first), num_rows, num_days, order)
        writer = writer or pq.ParquetWriter(file, rows.schema)
        writer.write_table(rows)
    if writer is not None:
        writer.close()


def piece(
    generator: np.random.Generator, first: int, num: int, num_rows: int, num_days: int, order: str
) -> pa.Table:
    """Rows `first` to `first + num` of the log: in order up to a minute, or in no order at all."""
    span_us = num_days * DAY_US
    if order == "sorted":
        arrival = np.arange(first, first + num) * (span_us // num_rows) + generator.integers(
            0, 60_000_000, num
        )
    else:
        arrival = generator.integers(0, span_us, num)
    arrival = (arrival // 1_000_000 + 1_600_000_000) * 1_000_000
    start = arrival + (generator.exponential(60.0, num) * 1e6).astype(np.int64)
    finish = start + (generator.exponential(600.0, num) * 1e6).astype(np.int64)
    instant = pa.timestamp("us", tz="UTC")

    def labels(prefix: str, num_labels: int) -> pa.Array:
        names = pa.array([f"{prefix}-{index}" for index in range(num_labels)])
        codes = pa.array(generator.integers(0, num_labels, num), pa.int32())
        return pa.DictionaryArray.from_arrays(codes, names)

    return pa.table(
        {
            "request_id": pa.array([f"r{index}" for index in range(first, first + num)]),
            "arrival": pa.array(arrival).cast(instant),
            "site": labels("site", 5),
            "service": labels("service", 30),
            "agent": labels("agent", 2_000),
            "cpu_cores": generator.integers(1, 64, num).astype(np.float64),
            "memory_gib": generator.lognormal(1.0, 1.0, num),
            "requested_run_s": np.rint(generator.lognormal(7.0, 1.0, num)),
            "start": pa.array(start).cast(instant),
            "finish": pa.array(finish).cast(instant),
            "status": pa.DictionaryArray.from_arrays(pa.array(np.zeros(num, np.int32)), ["completed"]),
            "ran_node": labels("node", 500),
        }
    )


def scan_archive(path: Path) -> int:
    return sum(batch.num_rows for batch in Archive(path).scan("requests", columns=COLUMNS))


def scan_bare(path: Path) -> int:
    """The yardstick: the same files and columns, one row group at a time, with pyarrow alone."""
    num_rows = 0
    for file in sorted((path / "table=requests").rglob("*.parquet")):
        parquet = pq.ParquetFile(file, read_dictionary=["service", "agent"], pre_buffer=False)
        for group in range(parquet.num_row_groups):
            num_rows += parquet.read_row_group(group, columns=list(COLUMNS)).num_rows
    return num_rows


def step(name: str, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Runs one step in this process; the result has its seconds, rows and peak memory."""
    file, archive = folder / "requests.parquet", folder / "archive"
    begun = time.perf_counter()
    num_rows: float = options.rows
    if name == "generate":
        generate(file, options.rows, options.days, options.order)
    elif name == "import":
        num_rows = import_log("native", [file], archive).rows["requests"]
    else:
        num_rows = {"scan": scan_archive, "bare": scan_bare}[name](archive)
    return {"seconds": time.perf_counter() - begun, "rows": num_rows, "peak_mb": peak_mib() * 2**20 / 1e6}


def in_process(name: str, folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """Runs one step in a process of its own."""
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.bench_archive",
        "--step",
        name,
        "--folder",
        str(folder),
    ]
    command += ["--rows", str(options.rows), "--days", str(options.days), "--order", options.order]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return result


def measure(options: argparse.Namespace) -> dict[str, object]:
    """All steps; scans are run in turns, three times each, and the fastest of each counts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        steps = {step_name: in_process(step_name, folder, options) for step_name in ("generate", "import")}
        for step_name in ("bare", "scan") * 3:
            result = in_process(step_name, folder, options)
            if step_name not in steps or result["seconds"] < steps[step_name]["seconds"]:
                steps[step_name] = result
        size_mb = sum(file.stat().st_size for file in (folder / "archive").rglob("*.parquet")) / 1e6
    ratio = steps["bare"]["seconds"] / steps["scan"]["seconds"]
    peaks = max(steps["import"]["peak_mb"], steps["scan"]["peak_mb"])
    rows = {name: steps[name]["rows"] for name in ("import", "scan", "bare")}
    return {
        "steps": steps,
        "archive_mb": size_mb,
        "scan_ratio": ratio,
        "peak_mb": peaks,
        "reached": peaks <= PEAK_TARGET_MB and ratio >= RATIO_TARGET and set(rows.values()) == {options.rows},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--order", choices=("sorted", "shuffled"), default="sorted")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(step(options.step, options.folder, options)))
        return 0
    result = measure(options)
    if options.json:
        print(json.dumps(result, indent=2))
        return 0 if result["reached"] else 1
    for name, figures in result["steps"].items():  # type: ignore[attr-defined]
        speed = figures["rows"] / figures["seconds"] / 1e6
        print(
            f"{name:9s} {figures['seconds']:8.1f} s  {speed:6.2f} M rows/s  peak {figures['peak_mb']:6.0f} MB"
        )
    print(
        f"archive {result['archive_mb']:.0f} MB on disk; scan at {result['scan_ratio']:.2f} of bare pyarrow"
    )
    verdict = "reached" if result["reached"] else "MISSED"
    print(f"targets (peak <= {PEAK_TARGET_MB} MB, ratio >= {RATIO_TARGET}): {verdict}")
    return 0 if result["reached"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
