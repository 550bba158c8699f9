"""`schedtwin serve` as a process, to be told, frozen and killed; and what it wrote down."""

import csv
import gzip
import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Server:
    """A running server.

    Args:
        bundle: What it serves.
        port: Where.
        log: Its decision log.
        options: Others of its command.
    """

    def __init__(self, bundle: Path, port: int, log: Path, *options: str) -> None:
        self.url, self.log = f"http://127.0.0.1:{port}", log
        command = (
            "-m",
            "evaluation.commands.cli",
            "serve",
            bundle,
            "--port",
            port,
            "--log",
            log,
            "--json",
            *options,
        )
        self.process = subprocess.Popen(
            [sys.executable, *map(str, command)], stdout=subprocess.PIPE, cwd=ROOT, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline(), "the server does not start"

    def tell(self, path: str, content: object) -> None:
        """Reports an event, or an inventory."""
        body = json.dumps(content).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url + path, body), timeout=10) as answer:
            answer.read()

    def freeze(self) -> None:
        """Stops it in the middle of whatever it does; its port still takes connections."""
        self.process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """Ends it at once."""
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        """Ends it in good order, log included."""
        self.process.terminate()
        self.process.wait(60)


@contextmanager
def serving(bundle: Path, port: int, log: Path, *options: str) -> Iterator[Server]:
    """A server that is killed at the end, if it lives still."""
    server = Server(bundle, port, log, *options)
    try:
        yield server
    finally:
        server.kill()
        server.process.communicate()


def decisions_in(log: Path) -> dict[str, dict[str, str]]:
    """The last row about every request, from a decision log."""
    rows: dict[str, dict[str, str]] = {}
    for path in sorted((log / "decisions").glob("decisions-*")):
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", newline="") as lines:
            rows |= {row["request_id"]: row for row in csv.DictReader(lines)}
    return rows
