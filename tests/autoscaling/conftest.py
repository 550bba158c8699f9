"""What several tests of controllers begin with."""

import threading
from http.server import ThreadingHTTPServer

import numpy as np
import pytest

from logs_schema.product import writing
from offline_rl.bundle import ARRAYS
from offline_rl.runner.scaling import KIND, write_setting
from tests.autoscaling.guarded import policy_of, write_golden
from tests.autoscaling.standing_in import StandIn, handler_of


@pytest.fixture
def bundle(tmp_path):
    policy, arrays = policy_of(0.6)
    with writing(tmp_path / "bundle", KIND) as folder:
        write_setting(folder, policy.setting)
        np.savez(folder / ARRAYS, **arrays)
        write_golden(folder, policy)
    return tmp_path / "bundle"


@pytest.fixture
def stand_in():
    shown = StandIn()

    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(shown))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    shown.url = f"http://127.0.0.1:{server.server_port}"
    yield shown
    server.shutdown()
    server.server_close()


@pytest.fixture
def deciding_once(bundle, stand_in):
    """Arguments of a controller of the bundle that decides once."""
    return [
        "autoscale", str(bundle), "--prometheus", stand_in.url, "--kube", stand_in.url, "--decisions", "1",
    ]  # fmt: skip
