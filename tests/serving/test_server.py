"""The running server: who may reach it, crowds and slow callers, reloads and kills, and what it does not need."""

import asyncio
import json
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import get_args

import pytest

from evaluation.commands.cli import main
from logs_schema import import_log
from offline_rl.serving import server as server_module
from offline_rl.serving.config import Heuristic, ServerConfig
from offline_rl.serving.server import is_loopback, protection
from tests.serving.bundles import make_bundle
from tests.serving.making import NAMES, pod, until

ROOT = Path(__file__).resolve().parents[2]
STACK = ("jax", "jaxlib", "flax", "optax", "pyarrow", "sklearn", "scipy", "matplotlib", "rich", "onnx")
QUESTION = {"Pod": pod(), "Nodes": None, "NodeNames": list(NAMES)}


@contextmanager
def running(bundle: Path, *options: str) -> Iterator[tuple[str, subprocess.Popen]]:
    command = [
        sys.executable,
        "-m",
        "evaluation.commands.cli",
        "serve",
        str(bundle),
        "--port",
        "0",
        "--json",
        *options,
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True
    ) as process:
        try:
            line = process.stdout.readline()
            assert line, process.stderr.read()
            yield json.loads(line)["url"], process
        finally:
            process.kill()


def query(
    url: str, path: str, content: object = None, *, context: ssl.SSLContext | None = None, token: str = ""
) -> tuple:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(url + path, data, headers, method="GET" if content is None else "POST")
    try:
        with urllib.request.urlopen(request, timeout=20, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory) -> Path:
    return make_bundle(tmp_path_factory.mktemp("bundle") / "bundle")


async def crowd(port: int, number: int) -> list[bytes]:
    """Status lines of as many callers, all connected at once."""
    body = json.dumps(QUESTION).encode()
    head = f"POST /prioritize HTTP/1.1\r\nHost: s\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(number)]
    for _, writer in streams:
        writer.write(head + body)
    lines = [await asyncio.wait_for(reader.readline(), 30) for reader, _ in streams]
    for _, writer in streams:
        writer.close()
    return lines


def test_one_life_of_a_server(bundle, tmp_path):
    """Crowd, slow caller, bundle spoiled and mended, kill -9: one server, because each takes a second to start."""
    served, log = tmp_path / "bundle", tmp_path / "log"
    shutil.copytree(bundle, served)
    with running(served, "--log", str(log), "--deadline-ms", "5000") as (url, process):
        port = int(url.rsplit(":", 1)[1])
        assert query(url, "/readyz")[0] == 200
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(b"POST /prioritize HTTP/1.1\r\nHost: s\r\nContent-Length: 100\r\n\r\n{")
            lines = asyncio.run(crowd(port, 100))
            assert lines == [b"HTTP/1.1 200 OK\r\n"] * 100
        first = json.loads(query(url, "/readyz")[1])["content_hash"]

        (served / "policy.npz").write_bytes(b"spoiled")
        assert query(url, "/reload", {})[0] == 409
        process.send_signal(signal.SIGHUP)
        assert until(lambda: 'reloads_total{outcome="refused"} 2.0' in query(url, "/metrics")[1])
        assert query(url, "/prioritize", QUESTION)[0] == 200
        shutil.rmtree(served)
        make_bundle(served, seed=1)
        process.send_signal(signal.SIGHUP)
        assert until(lambda: json.loads(query(url, "/readyz")[1])["content_hash"] != first)
        assert query(url, "/prioritize", QUESTION)[0] == 200

        # one pod, asked about again and again: its last row counts
        assert until(lambda: "schedtwin_log_rows_written_total 204.0" in query(url, "/metrics")[1])
        process.kill()
    report = import_log("native", [log / "requests"], tmp_path / "archive")
    assert (report.rows["requests"], dict(report.quarantined)) == (1, {})


def test_an_end_in_good_order_closes_the_log(bundle, tmp_path):
    with running(bundle, "--log", str(tmp_path), "--shadow") as (url, process):
        assert query(url, "/decide", {"request": {"request_id": "r"}})[0] == 200
        process.terminate()
        assert process.wait(20) in (0, -signal.SIGTERM)
    assert [path.suffix for path in (tmp_path / "requests").iterdir()] == [".gz"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost"
        " -addext subjectAltName=DNS:localhost,IP:127.0.0.1"
    )
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


def test_beyond_this_machine_only_with_token_and_tls(bundle, certificate, tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123\n")
    cert, key = certificate
    options = [
        "--host",
        "0.0.0.0",
        "--token-file",
        str(token),
        "--tls-cert",
        str(cert),
        "--tls-key",
        str(key),
    ]
    context = ssl.create_default_context(cafile=str(cert))
    with running(bundle, *options) as (url, _):
        url = url.replace("0.0.0.0", "localhost")
        assert query(url, "/prioritize", QUESTION, context=context)[0] == 401
        assert query(url, "/prioritize", QUESTION, context=context, token="0123456789abcdef0123")[0] == 200
        assert query(url, "/healthz", context=context)[0] == 200


@pytest.mark.parametrize(
    "options",
    [["--host", "0.0.0.0"], ["--host", "::"], ["--host", "example.org"], ["--tls-cert", "x.pem"],
     ["--token-file", "no-such-file"], ["--tls-cert", "no.pem", "--tls-key", "no.pem"], ["--port", "99999"]],
)  # fmt: skip
def test_a_start_that_cannot_be_is_refused_with_a_message(bundle, capsys, options):
    assert main(["serve", str(bundle), "--port", "0", *options]) == 2
    assert "schedtwin serve:" in capsys.readouterr().err


@pytest.mark.parametrize("fault", ["another key", "junk", "no certificate", "password"])
def test_files_that_make_no_tls_are_refused_in_a_line(bundle, certificate, tmp_path, capsys, fault):
    cert, key = certificate
    other = tmp_path / "other.pem"
    if fault in ("another key", "password"):
        locked = ["-aes128", "-passout", "pass:secret"] if fault == "password" else []
        subprocess.run(
            ["openssl", "genrsa", *locked, "-out", str(other), "2048"], check=True, capture_output=True
        )
    else:
        other.write_text("-----BEGIN CERTIFICATE-----\njunk\n" if fault == "junk" else "")
    pair = (other, key) if fault in ("junk", "no certificate") else (cert, other)
    options = ["--tls-cert", str(pair[0]), "--tls-key", str(pair[1])]
    assert main(["serve", str(bundle), "--port", "0", *options]) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert str(other) in said
    if fault == "another key":
        assert "do not belong together" in said


def test_a_log_that_cannot_be_is_refused_before_anything_is_decided(bundle, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "requests").write_text("")
    for log in ("file", "file/below", "log"):
        assert main(["serve", str(bundle), "--port", "0", "--log", str(tmp_path / log)]) == 2
        assert "decisions cannot be logged there" in capsys.readouterr().err


def test_secrets_that_everybody_may_read_are_named(tmp_path, capsys):
    secret = tmp_path / "token"
    secret.touch(0o600)
    server_module.warn_of_readers(secret)
    assert capsys.readouterr().err == ""
    secret.chmod(0o644)
    server_module.warn_of_readers(secret)
    assert f"{secret} (mode 0644)" in capsys.readouterr().err


def test_a_short_token_is_refused(tmp_path):
    token = tmp_path / "token"
    token.write_text("short")
    with pytest.raises(server_module.ServingError, match="too short"):
        protection(ServerConfig(tmp_path, token_file=token))


def test_a_bundle_that_is_none_is_refused_before_anything_listens(tmp_path, capsys):
    assert main(["serve", str(tmp_path), "--port", "0"]) == 2
    assert "schedtwin serve:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "own"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("127.8.8.8", True), ("0.0.0.0", False),
                      ("::", False), ("10.1.2.3", False), ("example.org", False), ("", False)]
)  # fmt: skip
def test_what_is_loopback(host, own):
    assert is_loopback(host) is own


def test_answers_are_not_held_back_to_be_bundled():
    with server_module.listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_the_server_needs_nothing_of_the_training_stack():
    program = (
        "import sys\n"
        "class Blocker:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.split('.')[0] in {STACK}:\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Blocker())\n"
        "import offline_rl.serving.server\n"
        "import evaluation.commands.serve\n"
        "print('fine')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("fine\n", "")


def test_a_missing_library_is_named_with_the_extra(monkeypatch, bundle, capsys):
    for name in [name for name in sys.modules if name.startswith("offline_rl.serving.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "orjson", None)
    assert main(["serve", str(bundle)]) == 2
    assert "WHEEL[serve]" in capsys.readouterr().err


def test_the_command_offers_the_fallbacks_there_are():
    from offline_rl.serving.fallbacks import FALLBACKS

    assert get_args(Heuristic) == tuple(one.name for one in FALLBACKS)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--canary", "2"], "a share of 2"),
        (["--explore", "nan"], "a share of nan"),
        (["--deadline-ms", "0"], "of 0 s"),
        (["--deadline-ms", "70000"], "of 70 s"),
    ],
)
def test_shares_and_deadlines_that_cannot_be_are_refused(bundle, capsys, words, told):
    assert main(["serve", str(bundle), *words]) == 2
    shown = capsys.readouterr().err
    assert told in shown
    assert words[0] in shown


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "policy for 100% of requests"),
        (["--canary", "0.004"], "policy for 0.4% of requests"),
        (["--canary", "0.999"], "policy for 99.9% of requests"),
        (["--shadow"], "shadow"),
    ],
)
def test_how_many_requests_the_policy_answers_is_told_as_it_is(tmp_path, monkeypatch, capsys, options, told):
    facts = {"bundle": "b", "url": "http://127.0.0.1:1"}
    monkeypatch.setattr(server_module, "serve", lambda _config, ready: ready(facts))
    assert main(["serve", str(make_bundle(tmp_path / "bundle")), *options]) == 0
    assert f"({told}); Ctrl-C" in capsys.readouterr().out
