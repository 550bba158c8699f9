"""The deployment files: against Kubernetes' published schemas, and against what the server takes."""

import argparse
import json
import math
import shlex
from contextlib import suppress
from importlib.resources import files
from typing import ClassVar
from urllib.parse import quote

import kubernetes_validate
import pytest
import yaml

from evaluation.commands import serve
from evaluation.commands.options import given
from offline_rl.kube_controller.kube_lease import KubeLease
from offline_rl.kube_controller.leading import Leading
from offline_rl.serving.app import App
from offline_rl.serving.config import ServerConfig, ServiceConfig
from offline_rl.serving.external_metrics import GROUP, WantedReplicas
from offline_rl.serving.kube_api import KubeApi, KubeError
from offline_rl.serving.scaling_controller import Controller
from offline_rl.serving.scaling_guard import Guard, GuardConfig
from offline_rl.serving.server import is_loopback
from tests.autoscaling.guarded import policy_of
from tests.serving.making import made_service

FOLDER = files("offline_rl.serving") / "deployment"
VERSION = "1.31"
EXTENDER = {
    "urlPrefix": str, "filterVerb": str, "preemptVerb": str, "prioritizeVerb": str, "weight": int, "bindVerb": str,
    "enableHTTPS": bool, "tlsConfig": dict, "httpTimeout": str, "nodeCacheCapable": bool, "managedResources": list,
    "ignorable": bool,
}  # fmt: skip
"""Fields of an Extender, the same in v1 and v1beta1; component configurations are in no published schema."""
VERSIONS = {f"kubescheduler.config.k8s.io/{version}" for version in ("v1", "v1beta1")}
CONFIGURATION = {
    "apiVersion", "kind", "parallelism", "leaderElection", "clientConnection", "enableProfiling",
    "enableContentionProfiling", "percentageOfNodesToScore", "podInitialBackoffSeconds", "podMaxBackoffSeconds",
    "profiles", "extenders", "delayCacheUntilActive",
}  # fmt: skip


def objects() -> list[dict]:
    return [
        one
        for path in sorted(FOLDER.iterdir(), key=lambda path: path.name)
        for one in yaml.safe_load_all(path.read_text(encoding="utf-8"))
    ]


def configurations() -> list[dict]:
    whole = [one for one in objects() if one["kind"] == "KubeSchedulerConfiguration"]
    inside = [
        yaml.safe_load(text)
        for one in objects()
        if one["kind"] == "ConfigMap"
        for text in one["data"].values()
    ]
    return whole + inside


def containers() -> list[dict]:
    deployments = [one for one in objects() if one["kind"] == "Deployment"]
    return [each for one in deployments for each in one["spec"]["template"]["spec"]["containers"]]


PUBLISHED = [one for one in objects() if one["kind"] != "KubeSchedulerConfiguration"]


@pytest.mark.parametrize("content", PUBLISHED, ids=lambda one: f"{one['kind']}-{one['metadata']['name']}")
def test_objects_are_valid_by_the_published_schemas(content):
    assert kubernetes_validate.validate(content, VERSION, strict=True) == VERSION


def test_the_schemas_would_notice():
    broken = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "x"},
        "spec": {"replica": 1},
    }
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, VERSION, strict=True)


def test_every_scheduler_configuration_is_there_in_both_versions_and_says_the_same():
    versions: dict[str, list[dict]] = {}
    for one in configurations():
        versions.setdefault(one["apiVersion"], []).append(one | {"apiVersion": ""})
    assert set(versions) == VERSIONS
    old, new = versions.values()
    assert len(old) == 2
    assert all(one in new for one in old)


@pytest.mark.parametrize(
    "content", configurations(), ids=lambda one: f"{one['apiVersion']} {one['extenders'][0]['urlPrefix']}"
)
def test_scheduler_configurations_have_known_fields_and_survive_an_outage(content):
    assert content["apiVersion"] in VERSIONS
    assert set(content) <= CONFIGURATION
    (extender,) = content["extenders"]
    assert all(isinstance(value, EXTENDER[name]) for name, value in extender.items())
    assert extender["ignorable"] is True
    assert extender["httpTimeout"].endswith("ms")
    assert int(extender["httpTimeout"].removesuffix("ms")) <= 500
    endpoints = App(made_service())._endpoints
    assert {f"/{extender['filterVerb']}", f"/{extender['prioritizeVerb']}"} <= set(endpoints)
    assert extender["enableHTTPS"] == extender["urlPrefix"].startswith("https")


def test_the_commands_are_ones_the_server_takes():
    commands = [one["command"] for one in containers() if one["command"][0] == "schedtwin"]
    assert len(commands) == 2
    for command in commands:
        parser = argparse.ArgumentParser()
        serve.add_arguments(parser)
        arguments = parser.parse_args(command[2:])
        assert given(ServiceConfig(), arguments).shadow, shlex.join(command)
        config = given(ServerConfig(arguments.bundle), arguments)
        assert is_loopback(config.host) or (config.token_file and config.tls_cert and config.tls_key)


def test_selectors_ports_and_volumes_fit_together():
    pods = {
        one["metadata"]["name"]: one["spec"]["template"] for one in objects() if one["kind"] == "Deployment"
    }
    (service,) = [one for one in objects() if one["kind"] == "Service"]
    template = pods["schedtwin-server"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    ports = {port["name"] for one in template["spec"]["containers"] for port in one.get("ports", [])}
    assert service["spec"]["ports"][0]["targetPort"] in ports
    for template in pods.values():
        volumes = {volume["name"] for volume in template["spec"]["volumes"]}
        assert {
            mount["name"] for one in template["spec"]["containers"] for mount in one["volumeMounts"]
        } <= volumes


def test_a_pod_autoscaler_asks_for_the_metric_that_is_offered():
    kinds = {one["kind"]: one for one in objects()}
    pods, api = kinds["HorizontalPodAutoscaler"]["spec"], kinds["APIService"]["spec"]
    assert f"{api['group']}/{api['version']}" == GROUP
    asked = pods["metrics"][0]["external"]
    selector = ",".join(
        f"{label}={name}" for label, name in asked["metric"]["selector"]["matchLabels"].items()
    )
    wanted = WantedReplicas("shop", 30.0)
    wanted.take(
        {"time": "now", "deployments": [{"deployment": "cart", "arm": "policy", "wanted": {"replicas": 7.0}}]}
    )
    path = f"/apis/{GROUP}/namespaces/shop/{asked['metric']['name']}?labelSelector={quote(selector)}"
    status, _, content = wanted.answer(path)
    (item,) = json.loads(content)["items"]
    per_replica = float(asked["target"]["averageValue"])
    assert (status, math.ceil(float(item["value"]) / per_replica)) == (200, 7)


def test_the_role_of_an_autoscaler_has_what_its_controller_calls():
    (role,) = [one for one in objects() if one["kind"] == "Role"]
    given_rights = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    called: set[tuple[str, str, str]] = set()

    class Called(KubeApi):
        def _call(self, method, path, body=None, kind=""):
            parts = path.split("/")
            resource = "/".join(parts[6:7] + parts[8:])
            is_list = method == "GET" and len(parts) == 7
            verbs = {"GET": "list" if is_list else "get", "POST": "create", "PUT": "update", "PATCH": "patch"}
            called.add((parts[2], resource, verbs[method]))
            if "leases" in path and method == "GET" and not self.held:
                error = KubeError("none")
                error.status = 404
                raise error
            return self.held.setdefault(
                "lease", {"items": [], "metadata": {"resourceVersion": "1"}, **(body or {})}
            )

        held: ClassVar[dict] = {}

    cluster = Called("http://nowhere")
    cluster.deployments("shop")
    cluster.held.clear()
    cluster.scale("shop", "cart", 3)
    cluster.held.clear()
    lead = Leading(KubeLease(cluster, "shop", "one"), "me", 60.0)
    with suppress(KubeError):
        lead.leads()
    cluster.held["lease"] = {"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": "me"}}
    with suppress(KubeError):
        lead.leads()
    guard = Guard(policy_of(0.6)[0], GuardConfig())
    cluster.held["lease"] = {"items": []}
    Controller(guard, None, cluster, "shop", ("cart",), None, lambda: 0.0)._ruled(cluster)
    assert called == given_rights
