"""Two autoscalers of one application at once: one writes, the other says who does; a log has one writer."""

import json
import os

import pytest

from evaluation.commands.autoscale import alone_in
from logs_schema.errors import ConfigError
from offline_rl.kube_controller.kube_lease import KubeLease
from offline_rl.kube_controller.leading import Leading
from offline_rl.runner.scaling import ScalingPolicy
from offline_rl.serving.kube_api import KubeError
from offline_rl.serving.scaling_controller import Controller
from offline_rl.serving.scaling_guard import Guard, GuardConfig
from tests.autoscaling.guarded import NAMES, policy_of
from tests.autoscaling.test_written_resources import NOW_S, KeptCluster, Monitored

PATH = "/apis/coordination.k8s.io/v1/namespaces/shop/leases"


class LeasingCluster(KeptCluster):
    """It keeps one Lease besides; `denied` is the status with which it refuses it."""

    def __init__(self):
        super().__init__({"name": "main", "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}}})
        object.__setattr__(self, "held", {"lease": None, "version": 0, "denied": 0})

    def get(self, path):
        if path.endswith("/horizontalpodautoscalers"):
            return super().get(path)
        assert path == f"{PATH}/one"
        if self.held["denied"] or self.held["lease"] is None:
            raise refused(self.held["denied"] or 404)
        return self.held["lease"]

    def write(self, method, path, body):
        assert (method, path) == (("POST", PATH) if self.held["lease"] is None else ("PUT", f"{PATH}/one"))
        body = json.loads(json.dumps(body))
        if body["metadata"].get("resourceVersion", "0") != str(self.held["version"]):
            raise refused(409)
        self.held["version"] += 1
        body["metadata"]["resourceVersion"] = str(self.held["version"])
        self.held["lease"] = body
        return body


def refused(status):
    error = KubeError(f"the API refused ({status})")
    error.status = status
    return error


def controller_of(cluster, identity, clock):
    policy, _ = policy_of(0.6)
    lead = Leading(KubeLease(cluster, "shop", "one"), identity, 60.0, clock)
    return Controller(
        Guard(ScalingPolicy(policy.setting, dict(policy_of(0.6)[1])), GuardConfig()),
        Monitored(),
        cluster,
        "shop",
        NAMES,
        None,
        lambda: NOW_S,
        lead,
    )


def test_of_two_autoscalers_one_writes_and_the_other_takes_over_when_it_is_gone():
    now, cluster = [0.0], LeasingCluster()
    one, two = (controller_of(cluster, name, lambda: now[0]) for name in ("one", "two"))
    assert "follows" not in one.step()
    told = two.step()
    assert (told["follows"], [row["written"] for row in told["deployments"]]) == ("one", [False, False])
    assert cluster.replicas == dict.fromkeys(NAMES, 3)
    now[0] = 59.0
    assert "follows" not in one.step()
    now[0] = 100.0
    assert two.step()["follows"] == "one"  # it has just seen that the lease was renewed
    now[0] = 161.0
    assert "follows" not in two.step()
    assert one.step()["follows"] == "two"
    two.lead.resign()
    assert "follows" not in one.step()


def test_an_account_without_the_right_to_leases_writes_nothing():
    cluster = LeasingCluster()
    cluster.held["denied"] = 403
    with pytest.raises(KubeError, match="keeps two autoscalers apart"):
        controller_of(cluster, "one", lambda: 0.0).step()
    assert cluster.replicas == dict.fromkeys(NAMES, 2)


def test_a_log_has_one_writer(tmp_path):
    log = tmp_path / "log"
    with alone_in(log), alone_in(None):
        refused = pytest.raises(ConfigError, match="another process writes the log")
        with refused, alone_in(log):
            pass
    with alone_in(log):
        assert os.listdir(log) == []
