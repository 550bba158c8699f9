"""Cores and memory that a controller writes: what containers have, and what they lack."""

import csv
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from logs_schema.formats.metric_series import MetricSeries, Samples
from logs_schema.tables import GATEWAY
from offline_rl.runner.scaling import ScalingPolicy
from offline_rl.serving.kube_api import KubeApi
from offline_rl.serving.prometheus import reading_of
from offline_rl.serving.scaling_controller import Controller
from offline_rl.serving.scaling_guard import Guard, GuardConfig
from tests.autoscaling.guarded import INTERVAL_S, NAMES, policy_of

NOW_S = 1_700_000_015.0
LAST = int(NOW_S // INTERVAL_S) - 1


def add_all(samples, known):
    """The same numbers in every interval: deployment -> column -> number."""
    times_s = [at * samples.interval_s for at in range(LAST - 12, LAST + 1)]
    for name, row in known.items():
        for column, number in row.items():
            samples.add(MetricSeries(column), name, times_s, [number] * len(times_s))


class Monitored:
    """Metrics like those of training, which measure neither memory nor failures."""

    mapping = SimpleNamespace(names=lambda _column, of_gateway=False: False)
    warnings = ()
    refused = MappingProxyType({})

    def samples(self, _begin_s, _end_s, interval_s):
        found = Samples(interval_s)
        known = {"cpu_cores_used": 0.2, "request_rate_per_s": 10.0, "response_s": 0.05}
        add_all(
            found,
            dict.fromkeys(NAMES, known) | {GATEWAY: {"request_rate_per_s": 10.0, "response_p95_s": 0.2}},
        )
        return found


class KeptCluster(KubeApi):
    """Deployments of two replicas whose containers take what is written to them."""

    def __init__(self, *containers):
        super().__init__("http://nowhere")
        object.__setattr__(self, "replicas", dict.fromkeys(NAMES, 2))
        object.__setattr__(self, "containers", {name: [dict(one) for one in containers] for name in NAMES})
        object.__setattr__(self, "written", [])

    def get(self, path):
        assert path.endswith("/horizontalpodautoscalers")
        return {"items": []}

    def deployments(self, _namespace):
        return {
            name: {
                "spec": {"replicas": self.replicas[name], "template": {"spec": {"containers": containers}}}
            }
            for name, containers in self.containers.items()
        }

    def scale(self, _namespace, deployment, replicas):
        self.replicas[deployment] = replicas

    def patch(self, path, body, _kind=None):
        name = path.split("/")[-1]
        (changed,) = body["spec"]["template"]["spec"]["containers"]
        self.written.append((name, changed["resources"]["limits"]))
        for one in self.containers[name]:
            if one["name"] == changed["name"]:
                for kind, amounts in changed["resources"].items():
                    one["resources"] = one["resources"] | {kind: one["resources"].get(kind, {}) | amounts}


def container(name, **limits):
    return {"name": name, "resources": {"limits": limits}}


def policy_that(cores, replicas=0.0):
    """Students that change cores and replicas by shares of their reach."""
    policy, arrays = policy_of(replicas)
    arrays["Dense_2/bias"][:, 0] = np.arctanh(cores)
    return ScalingPolicy(policy.setting, arrays)


def controlling(policy, cluster, log=None):
    guard = Guard(policy, GuardConfig(resources=True))
    return Controller(guard, Monitored(), cluster, "shop", NAMES, log, lambda: NOW_S)


@pytest.mark.parametrize(
    ("limits", "lacking", "written"),
    [
        ({"cpu": "400m"}, "memory_gib", []),
        ({"memory": "512Mi"}, "cpu_cores", []),
        ({"cpu": "100m"}, "memory_gib", [{"cpu": "250m"}]),  # it stands below its bound
    ],
)
def test_an_amount_that_no_container_names_is_not_written(tmp_path, limits, lacking, written):
    cluster = KeptCluster(container("main", **limits))
    rows = controlling(policy_that(0.9), cluster, tmp_path).step()["deployments"]
    assert [lacking in row["error"] for row in rows] == [True, True]
    assert [row["written"] for row in rows] == [bool(written)] * 2
    assert [amounts for name, amounts in cluster.written if name == "cart"] == written
    (log,) = (tmp_path / "deployment_samples").glob("*.csv")
    with log.open() as file:
        changes = [
            float(row["action_cpu_cores"]) for row in csv.DictReader(file) if row["deployment"] == "cart"
        ]
    assert changes == [pytest.approx(0.15) if written else 0.0]


def test_the_first_container_is_written_what_the_others_leave():
    side = container("side", cpu="200m", memory="128Mi")
    cluster = KeptCluster(container("main", cpu="300m", memory="256Mi"), side)
    controller = controlling(policy_that(0.9), cluster)  # 225 millicores more, up to 2 cores
    for _ in range(10):
        controller.step()
    written = [int(amounts["cpu"].removesuffix("m")) for name, amounts in cluster.written if name == "cart"]
    assert written == [525, 750, 975, 1200, 1425, 1650, 1800]
    assert cluster.containers["cart"][1] == side


@pytest.mark.parametrize(
    "containers",
    [
        (container("main", cpu="100m", memory="512Mi"), container("side", cpu="1995m")),  # of 2 cores
        (container("main", memory="512Mi"), container("side", cpu="500m")),
    ],
)
def test_a_first_container_that_nothing_is_left_for_is_not_written(containers):
    cluster = KeptCluster(*containers)
    rows = controlling(policy_that(0.9), cluster).step()["deployments"]
    assert all("cannot be shared" in row["error"] for row in rows)
    assert cluster.written == []


def test_memory_that_is_measured_but_missing_now_is_not_taken_for_none():
    """Seen as 0 the policy would think the replicas' memory empty."""
    samples = Monitored().samples(0.0, 0.0, INTERVAL_S)
    twos = np.full(2, 2.0)
    # Nothing measures it
    assert reading_of(samples, LAST, NAMES, twos).memory_gib_used.tolist() == [
        0.0,
        0.0,
    ]
    add_all(samples, {NAMES[0]: {"memory_gib_used": 0.3}})
    found = reading_of(samples, LAST, NAMES, twos).memory_gib_used
    assert found[0] == 0.3
    assert np.isnan(found[1])


def test_an_interval_is_logged_with_the_grants_that_it_had(tmp_path):
    """Metrics are late: what is granted now is not what they were measured under."""
    policy, _ = policy_of(0.6)
    cluster = KeptCluster({"name": "main", "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}}})
    late = Monitored()
    now = [(LAST + 1) * INTERVAL_S + 5.0]
    controller = Controller(
        Guard(policy, GuardConfig()), late, cluster, "shop", NAMES, tmp_path, lambda: now[0]
    )
    controller.step()
    now[0] += INTERVAL_S  # the first decision has been carried out, and the metrics are those before it
    controller.journal.logged_until = -1
    controller.step()
    (path,) = (tmp_path / "deployment_samples").glob("*.csv")
    rows = [row for row in csv.DictReader(path.read_text().splitlines()) if row["deployment"] == "cart"]
    assert [row["num_replicas"] for row in rows] == ["2", "2"]
    assert cluster.replicas["cart"] > 3
