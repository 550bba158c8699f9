"""A bearer token stays with the host that it is for, and an answer that drips is not waited for."""

import io
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from logs_schema.formats.mapping import read_mapping
from offline_rl.serving.direct_http import content_of
from offline_rl.serving.kube_api import KubeApi, KubeError
from offline_rl.serving.prometheus import MetricsError, Prometheus


@contextmanager
def answering(code, **headers):
    """A server of one answer, and the tokens that it was sent."""
    tokens = []

    class OneAnswer(BaseHTTPRequestHandler):
        def do_GET(self):
            tokens.append(self.headers["Authorization"])
            self.send_response(code)
            for name, value in ({"Content-Length": "2"} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), OneAnswer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", tokens
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_token_follows_no_redirect(tmp_path, code):
    (tmp_path / "token").write_text("secret")
    (tmp_path / "mapping.toml").write_text('[metrics.cpu_cores_used]\nsource = "cpu"\n')
    mapping = read_mapping(tmp_path / "mapping.toml")
    with answering(200) as (other, stolen), answering(code, Location=f"{other}/x") as (url, tokens):
        with pytest.raises(KubeError, match=rf"elsewhere .*{code}.*redirect to {other}/x"):
            KubeApi(url, tmp_path / "token").get("/apis")
        with pytest.raises(MetricsError, match=rf"{code}.*redirect to {other}/x"):
            Prometheus(url, mapping, tmp_path / "token").samples(0.0, 60.0, 30.0)
    assert tokens == ["Bearer secret"] * 2
    assert stolen == []


def test_an_answer_that_drips_ends_in_time():
    assert content_of(io.BytesIO(b"0123456789"), 4, 5.0) == b"0123"
    assert content_of(io.BytesIO(b"0123456789"), 40, 5.0) == b"0123456789"
    drips = SimpleNamespace(read1=lambda _num_bytes: time.sleep(0.01) or b" ")
    with pytest.raises(TimeoutError, match="is not whole after"):
        content_of(drips, 10**6, 0.05)
