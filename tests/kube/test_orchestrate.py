"""The controller beside a real API server: scales are read, tried and written, and one of two controllers leads.

`make test-kube FOLDER=path` runs it. There is no deployment controller: the test says how many replicas are ready.
"""

from pathlib import Path
from typing import Any

import pytest

from offline_rl.kube_controller.kubernetes import Access
from tests.kube.control_plane import MERGE, Api, control_plane
from tests.kube.test_beside_kube_scheduler import programs
from tests.kube_controller.bench import LESS_OCR, MORE_ASR, MORE_OCR, NOTHING, Bench

__all__ = ["programs"]
pytestmark = pytest.mark.slow
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
DEPLOYED = {"ocr-n0": ("ocr", "n0", 2), "asr-n1": ("asr", "n1", 1)}


def introduce(api: Api) -> None:
    """Makes the nodes and the deployments, all of whose replicas are ready."""
    for name, (service, node, replicas) in DEPLOYED.items():
        api.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
        ready = {"type": "Ready", "status": "True"}
        api.call("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"conditions": [ready]}}, MERGE)
        labels = {"schedtwin.io/service": service, "schedtwin.io/node": node}
        pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "one", "image": "none"}]}}
        spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
        api.call("POST", DEPLOYMENTS, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        serve(api, name, replicas)


def serve(api: Api, name: str, replicas: int) -> None:
    """Says that so many replicas are ready."""
    status = {"status": {"replicas": replicas, "readyReplicas": replicas}}
    api.call("PATCH", f"{DEPLOYMENTS}/{name}/status", status, MERGE)


def asked(api: Api) -> dict[str, int]:
    """Deployment -> replicas that its scale asks for."""
    return {name: api.call("GET", f"{DEPLOYMENTS}/{name}")["spec"]["replicas"] for name in DEPLOYED}


def test_frames_beside_a_real_api_server(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "plane").mkdir()
    with control_plane(programs, tmp_path / "plane") as plane:
        api = plane.api()
        introduce(api)
        told: dict[str, Any] = {
            "server": f"https://127.0.0.1:{plane.port}",
            "ca_file": plane.work / "apiserver.crt",
        }
        for name, token in (
            ("token", (plane.work / "tokens.csv").read_text().split(",")[0]),
            ("other", "wrong"),
        ):
            (tmp_path / name).write_text(token)
        bench = Bench(Access(token_file=tmp_path / "token", **told), tmp_path)
        assert bench.frame((0, MORE_OCR), (1, MORE_ASR)).outcome == "changed"
        assert asked(api) == {"ocr-n0": 3, "asr-n1": 2}
        assert bench.seen[-1].up.all()
        bench.report(running={"ocr": {"n0": 2.5}})
        serve(api, "ocr-n0", 3)
        assert bench.frame((0, LESS_OCR)).outcome == "nothing_to_change"  # it serves
        bench.report(running={"ocr": {"n0": 0.0}})
        assert bench.frame((0, NOTHING)).outcome == "changed"
        assert asked(api) == {"ocr-n0": 2, "asr-n1": 2}
        seen = bench.cluster.hosted()
        api.call("PATCH", f"{DEPLOYMENTS}/asr-n1", {"spec": {"replicas": 5}}, MERGE)
        bench.cluster.hosted = lambda: seen  # type: ignore[method-assign]
        assert "somebody else changed it" in bench.frame((0, MORE_OCR), (1, MORE_ASR)).reason
        assert asked(api) == {"ocr-n0": 2, "asr-n1": 5}
        assert not bench.leading("another").leads()
        stranger = Bench(Access(token_file=tmp_path / "other", **told), tmp_path)
        assert "does not permit this: 401" in stranger.frame((0, MORE_OCR)).reason
