"""`schedtwin orchestrate` beside a stand-in of the API server: what a person, or a program, is told of every frame."""

import json
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from evaluation.commands.cli import main
from offline_rl.runner.frame_network import Chosen
from tests.kube_controller.bench import FACTS, MORE_ASR, MORE_OCR
from tests.kube_controller.stand_in import NAMESPACE, StandIn, listening


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command but for the server; whoever decides adds a replica that can be, and one that cannot."""
    chosen = Chosen(np.array([0, 0]), np.array([MORE_OCR, MORE_ASR]))
    decides = SimpleNamespace(facts=FACTS, content_hash="hash", decide=lambda _view: chosen)
    monkeypatch.setattr("offline_rl.runner.orchestrator.load_orchestrator", lambda *_a, **_k: decides)
    (tmp_path / "loads.json").write_text(json.dumps({"time_s": time.time()}))
    words = ["orchestrate", str(tmp_path), "--loads", str(tmp_path / "loads.json"), "--frames", "1"]
    return [*words, "--namespace", NAMESPACE]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--server", "127.0.0.1:1"], "begins with http"),
        (["--server", "http://127.0.0.1:1", "--kubeconfig", "FILE"], "both --server and --kubeconfig"),
        (["--token-file", "FILE"], "--token-file without --server"),
        (["--server", "http://127.0.0.1:1", "--ca-file", "absent"], "no such file: --ca-file absent"),
        (["--kubeconfig", "FILE"], "nothing says where the API server is"),
        (["--server", "http://127.0.0.1:1", "--frames", "0"], "--frames 0"),
        (["--server", "http://127.0.0.1:1"], "did not answer"),  # as many frames as asked for have failed
    ],
)
def test_what_cannot_be_reached_is_told_and_fails(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    (tmp_path / "file").write_text("[days]\nnum_days = 1\n")
    assert main([*command, *(str(tmp_path / "file") if word == "FILE" else word for word in words)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("port", ["TAKEN", "99999", "-5"])
def test_a_port_that_cannot_be_had_is_told(
    command: list[str], capsys: pytest.CaptureFixture[str], port: str
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = port.replace("TAKEN", str(taken.getsockname()[1]))
        assert main([*command, "--server", "http://127.0.0.1:1", "--metrics-port", port]) == 2
    told = capsys.readouterr().err
    assert "metrics cannot be offered there" in told
    assert f"--metrics-port {port}" in told


def test_a_dry_run_says_what_it_would_change(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with listening(StandIn({"ocr-n0": ("ocr", "n0", 2, 2)})) as api:
        assert main([*command, "--server", api.url]) == 0
        told = capsys.readouterr().out
        assert "(dry run)" in told
        assert "dry run; ocr on n0 2 -> 3; no deployment of service asr on node n0" in told
        assert main([*command, "--server", api.url, "--json"]) == 0
        assert not api.writes
    frame = json.loads(capsys.readouterr().out)
    assert frame["changes"] == [{"service": "ocr", "node": "n0", "from": 2, "to": 3}]
    assert frame["outcome"] == "dry_run"
