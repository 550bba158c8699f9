"""The autoscaling controller beside a real API server: replicas and resources are written, and rivals left alone.

`make test-kube FOLDER=path` runs it. Monitoring is a stand-in, and there is no deployment controller.
"""

from pathlib import Path

import pytest

from logs_schema.formats.mapping import read_mapping
from offline_rl.serving.kube_api import KubeApi, KubeError
from offline_rl.serving.prometheus import Prometheus
from offline_rl.serving.scaling_controller import Controller
from offline_rl.serving.scaling_guard import Guard, GuardConfig
from tests.autoscaling.conftest import stand_in
from tests.autoscaling.guarded import NAMES
from tests.autoscaling.standing_in import NOW_S, mapping_in
from tests.autoscaling.test_written_resources import policy_that
from tests.kube.control_plane import Api, control_plane
from tests.kube.test_beside_kube_scheduler import programs

__all__ = ["programs", "stand_in"]
pytestmark = pytest.mark.slow
DEPLOYMENTS = "/apis/apps/v1/namespaces/shop/deployments"
PODS = {"cart": [("main", "300m", "256Mi"), ("side", "100m", "128Mi")], "front": [("main", "500m", "512Mi")]}


def introduce(api: Api) -> None:
    """Makes the namespace and its deployments, of two replicas each."""
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "shop"}})
    for name, containers in PODS.items():
        labels = {"app": name}
        held = [
            {
                "name": one,
                "image": "none",
                "resources": {kind: {"cpu": cpu, "memory": memory} for kind in ("limits", "requests")},
            }
            for one, cpu, memory in containers
        ]
        pod = {"metadata": {"labels": labels}, "spec": {"containers": held}}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pod}
        api.call("POST", DEPLOYMENTS, {"metadata": {"name": name, "labels": labels}, "spec": spec})


def rule(api: Api, name: str) -> None:
    """Puts a deployment under a pod autoscaler."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    spec = {"scaleTargetRef": target, "maxReplicas": 9}
    path = "/apis/autoscaling/v1/namespaces/shop/horizontalpodautoscalers"
    api.call("POST", path, {"metadata": {"name": name}, "spec": spec})


def granted(api: Api, name: str) -> tuple[int, dict[str, tuple[str, str]]]:
    """Replicas, and container -> limits of cores and memory."""
    spec = api.call("GET", f"{DEPLOYMENTS}/{name}")["spec"]
    limits = {one["name"]: one["resources"]["limits"] for one in spec["template"]["spec"]["containers"]}
    return spec["replicas"], {one: (held["cpu"], held["memory"]) for one, held in limits.items()}


def test_intervals_beside_a_real_api_server(programs: Path, tmp_path: Path, stand_in) -> None:
    (tmp_path / "plane").mkdir()
    with control_plane(programs, tmp_path / "plane") as plane:
        api = plane.api()
        introduce(api)
        (tmp_path / "token").write_text((plane.work / "tokens.csv").read_text().split(",")[0])
        (tmp_path / "wrong").write_text("wrong")
        metrics = Prometheus(stand_in.url, read_mapping(mapping_in(tmp_path)))

        def controller(cores: float, replicas: float, token: str = "token") -> Controller:
            kube = KubeApi(
                f"https://127.0.0.1:{plane.port}", tmp_path / token, plane.work / "apiserver.crt", 30.0
            )
            guard = Guard(policy_that(cores, replicas), GuardConfig(resources=True))
            return Controller(guard, metrics, kube, "shop", NAMES, None, lambda: NOW_S)

        first = controller(0.9, 0.9)
        first.refuse_rivals()
        rows = {row["deployment"]: row for row in first.step()["deployments"]}
        assert all(row["written"] and not row["error"] for row in rows.values())
        for name in NAMES:
            replicas, limits = granted(api, name)
            assert replicas == rows[name]["wanted"]["replicas"] > 2
            side_cores = 0.1 if "side" in limits else 0.0
            cores = float(limits["main"][0].removesuffix("m")) / 1e3
            assert cores + side_cores == pytest.approx(rows[name]["wanted"]["cpu_cores"], abs=1e-3)
        assert granted(api, "cart")[1]["side"] == ("100m", "128Mi")  # other containers stay as they are

        rule(api, "cart")
        before = granted(api, "cart")
        rows = {row["deployment"]: row for row in controller(0.9, 0.9).step()["deployments"]}
        assert "HorizontalPodAutoscaler rules it" in rows["cart"]["error"]
        assert granted(api, "cart") == before
        assert rows["front"]["written"]

        api.call("DELETE", f"{DEPLOYMENTS}/front")
        rows = {row["deployment"]: row for row in controller(0.9, 0.9).step()["deployments"]}
        assert "no such deployment" in rows["front"]["error"]

        with pytest.raises(KubeError, match="401"):
            controller(0.9, 0.9, "wrong").step()
