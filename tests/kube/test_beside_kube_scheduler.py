"""The server as a scheduler extender beside a real kube-scheduler, with the configuration that stands in the sidecar.

`make test-kube FOLDER=path` runs it; the folder holds the programs kube-apiserver, kube-scheduler and etcd. A shadow
phase first, so that the policy is one for this cluster; then, for several timeouts of kube-scheduler, the policy
decides, and the server is frozen, killed, and back.
"""

import os
import time
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from logs_schema import import_log
from tests.kube.control_plane import PROGRAMS, control_plane, free_port
from tests.kube.server import Server, decisions_in, serving
from tests.kube.training import trained_on
from tests.kube.trial import Cluster, Phase, measured
from tests.serving.bundles import make_bundle

pytestmark = pytest.mark.slow
NUM_SHADOWS, NUM_PODS = 20, 15
SHIPPED_MS = 200
TIMEOUTS_MS = (SHIPPED_MS, 50, 20)
NUM_CALLS = 2
"""A pod's: `/filter` and `/prioritize`."""
TIME_OF_DAY = 2
"""Features that are out of range after some minutes, since the training log is minutes long: sine and cosine."""
ROOM_S = 5.0
"""For what is not the server's: two cores have much else to do."""


def configurations() -> dict[str, dict]:
    """The sidecar's scheduler configurations by version."""
    text = (files("offline_rl.serving") / "deployment" / "sidecar.yaml").read_text(encoding="utf-8")
    maps = [one for one in yaml.safe_load_all(text) if one["kind"] == "ConfigMap"]
    found = [yaml.safe_load(content) for one in maps for content in one["data"].values()]
    return {one["apiVersion"].rsplit("/", 1)[1]: one for one in found}


@pytest.fixture
def programs() -> Path:
    named = os.environ.get("KUBE_FOLDER")
    if not named:
        pytest.skip(f"no control plane: make test-kube FOLDER=path, with {', '.join(PROGRAMS)} in it")
    missing = [name for name in PROGRAMS if not os.access(Path(named) / name, os.X_OK)]
    assert not missing, f"{named} lacks the programs {', '.join(missing)}"
    return Path(named)


def phases(cluster: Cluster, bundle: Path, port: int, timeout_ms: int, work: Path) -> Iterator[Phase]:
    """What a server goes through whose deadline is a quarter of what the scheduler waits for it."""

    def decided(name: str, server: Server) -> Phase:
        pods = cluster.play(NUM_PODS, server)
        time.sleep(1.0)  # the log is written five times a second
        return measured(name, timeout_ms, pods, decisions_in(server.log))

    def silent(name: str) -> Phase:
        return measured(name, timeout_ms, cluster.play(NUM_PODS, None), {})

    deadline = ("--deadline-ms", str(timeout_ms / 4))
    with serving(bundle, port, work / f"log-{timeout_ms}", *deadline) as server:
        cluster.introduce(server)
        yield decided("policy", server)
        server.freeze()
        yield silent("frozen")
        server.kill()
        yield silent("killed")
    with serving(bundle, port, work / f"log-{timeout_ms}-back", *deadline) as server:
        cluster.introduce(server)
        yield decided("back", server)


@pytest.fixture
def measurements(programs, tmp_path, capsys) -> list[Phase]:
    """All phases, shadow mode and training before them; logs and products stay in the folder of the test."""
    port, found = free_port(), []
    url, shadow = f"http://127.0.0.1:{port}", tmp_path / "shadow"
    (tmp_path / "plane").mkdir()
    with control_plane(programs, tmp_path / "plane") as plane:
        cluster = Cluster(plane)
        with (
            plane.scheduler(configurations(), url, SHIPPED_MS),
            serving(make_bundle(tmp_path / "drawn"), port, shadow, "--shadow") as server,
        ):
            cluster.introduce(server)
            pods = [pod for _ in range(NUM_SHADOWS) for pod in cluster.play(NUM_PODS, server)]
            server.close()
        assert all(pod.ended for pod in pods)
        bundle = trained_on(shadow, tmp_path / "made")
        for timeout_ms in TIMEOUTS_MS:
            with plane.scheduler(configurations(), url, timeout_ms):
                for phase in phases(cluster, bundle, port, timeout_ms, tmp_path):
                    found.append(phase)
                    with capsys.disabled():
                        print(phase, flush=True)
    return found


def test_pods_are_bound_whatever_becomes_of_the_server(measurements, tmp_path):
    by_name = {(phase.timeout_ms, phase.name): phase for phase in measurements}
    assert len(by_name) == 4 * len(TIMEOUTS_MS)
    assert [len(phase.waits_s) for phase in measurements] == [NUM_PODS] * len(measurements)
    for name in ("policy", "back"):
        assert by_name[SHIPPED_MS, name].num_named > NUM_PODS / 2
    frozen = {timeout_ms: by_name[timeout_ms, "frozen"] for timeout_ms in TIMEOUTS_MS}
    for timeout_ms, phase in frozen.items():
        assert max(phase.waits_s) < NUM_CALLS * NUM_PODS * timeout_ms / 1e3 + ROOM_S
    assert frozen[SHIPPED_MS].median_s > 2 * frozen[min(TIMEOUTS_MS)].median_s

    killed = [tmp_path / f"log-{timeout_ms}" for timeout_ms in TIMEOUTS_MS]
    for log in (tmp_path / "shadow", *killed):
        rows = decisions_in(log)
        report = import_log("native", [log / "requests"], tmp_path / f"{log.name}-archive")
        assert (report.rows["requests"], dict(report.quarantined)) == (len(rows), {})
    told = [row for log in killed for row in decisions_in(log).values() if row["arm"] == "policy"]
    assert all(int(row["num_unknown_labels"]) == 0 for row in told)
    assert sum(int(row["num_out_of_range"]) > TIME_OF_DAY for row in told) < len(told) / 5
