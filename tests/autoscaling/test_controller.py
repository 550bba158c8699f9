"""The controller against a small stand-in of Prometheus and the Kubernetes API: what it reads, writes and leaves."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from evaluation.commands.cli import main
from logs_schema import Archive
from logs_schema.errors import ConfigError, ProductError, SchedtwinError
from logs_schema.formats.mapping import read_mapping
from offline_rl.bundle import ARRAYS
from offline_rl.runner.scaling import Granted, load_scaling
from offline_rl.serving.container_grants import granted_in
from offline_rl.serving.kube_api import KubeApi, KubeError
from offline_rl.serving.prometheus import MetricsError, Prometheus
from offline_rl.serving.scaling_guard import FALLBACK, HOLD, POLICY, Guard, GuardConfig
from tests.autoscaling.guarded import INTERVAL_S, NAMES
from tests.autoscaling.standing_in import LAST, NOW_S, QUERIES, controlling, http, mapping_in


def test_it_recommends_and_writes_nothing(tmp_path, bundle, stand_in):
    with controlling(tmp_path, bundle, stand_in) as controller:
        controller.refuse_rivals()
        told = controller.step()
    assert [row["arm"] for row in told["deployments"]] == [POLICY, POLICY]
    assert [row["wanted"]["replicas"] for row in told["deployments"]] == [3.0, 3.0]  # .6 of a reach of 2
    assert told["deployments"][0]["granted"] == {"cpu_cores": 0.5, "memory_gib": 0.5, "replicas": 2.0}
    assert stand_in.written == []


def test_the_canary_alone_is_written_through_the_scale_subresource(tmp_path, bundle, stand_in):
    with controlling(tmp_path, bundle, stand_in, ["cart"]) as controller:
        told = controller.step()
    path = "/apis/apps/v1/namespaces/shop/deployments/cart/scale"
    assert stand_in.written == [(path, {"spec": {"replicas": 3}})]
    assert [row["written"] for row in told["deployments"]] == [True, False]


def test_nobody_is_scaled_against_a_pod_autoscaler(tmp_path, bundle, stand_in):
    stand_in.ruled = ["cart"]
    with controlling(tmp_path, bundle, stand_in) as controller:
        controller.refuse_rivals()
    for writes, words in ((["cart"], "HorizontalPodAutoscaler rules cart"), (["bank"], "does not know bank")):
        with (
            controlling(tmp_path, bundle, stand_in, writes) as controller,
            pytest.raises(ConfigError, match=words),
        ):
            controller.refuse_rivals()
    del stand_in.replicas["front"]
    with controlling(tmp_path, bundle, stand_in) as controller:
        controller.refuse_rivals()  # a restart goes on with those that are left
        del stand_in.replicas["cart"]
        with pytest.raises(ConfigError, match="no deployment cart or front"):
            controller.refuse_rivals()


@pytest.mark.parametrize(
    ("values", "arm", "reason", "replicas"),
    [
        ({"rate": 25.0}, FALLBACK, "the log has seen 20", 2.0),  # use 0.4 of 0.5: ceil(2 * 0.8)
        ({"rate": 25.0, "cpu": 500.0}, FALLBACK, "the log has seen 20", 4.0),
        ({"p95": "NaN"}, FALLBACK, "what users see", 2.0),
        ({"cpu": "NaN"}, HOLD, "are missing", 2.0),
    ],
)
def test_the_pod_autoscalers_rules_decide_where_the_policy_cannot(
    tmp_path, bundle, stand_in, values, arm, reason, replicas
):
    stand_in.values |= values
    with controlling(tmp_path, bundle, stand_in) as controller:
        row = controller.step()["deployments"][0]
    assert row["arm"] == arm
    assert reason in row["reason"]
    assert row["wanted"]["replicas"] == replicas


def test_old_metrics_change_nothing(tmp_path, bundle, stand_in):
    stand_in.last = LAST - 6
    with controlling(tmp_path, bundle, stand_in, NAMES) as controller:
        rows = controller.step()["deployments"]
    assert [row["arm"] for row in rows] == [HOLD, HOLD]
    assert "6 intervals old" in rows[0]["reason"]
    assert not any(row["written"] for row in rows)
    assert stand_in.written == []


def test_a_deployment_that_vanishes_is_left_alone_and_the_others_are_scaled(tmp_path, bundle, stand_in):
    with controlling(tmp_path, bundle, stand_in, NAMES, GuardConfig(max_cores=1.2)) as controller:
        del stand_in.replicas["front"]
        rows = controller.step()["deployments"]
        assert "1.2 are allowed" in rows[0]["reason"]  # the bound holds for what is left
        controller.guard = Guard(controller.guard.policy, GuardConfig())
        rows = controller.step()["deployments"]
    assert [row["written"] for row in rows] == [True, False]
    assert "no such deployment" in rows[1]["error"]
    assert stand_in.replicas == {"cart": 3}


def test_the_log_is_read_as_a_log(tmp_path, bundle, stand_in):
    with controlling(tmp_path, bundle, stand_in, ["cart"], log=tmp_path / "log") as controller:
        controller.step()
        controller.step()  # the same interval: no second row of it
    arguments = [
        "import",
        "native",
        str(tmp_path / "log" / "deployment_samples"),
        "--out",
        str(tmp_path / "a"),
    ]
    assert main([*arguments, "--no-progress"]) == 0
    rows = Archive(tmp_path / "a").read("deployment_samples").to_pylist()
    assert [row["deployment"] for row in rows] == ["cart", "front", "gateway"]
    assert [row["action_replicas"] for row in rows] == [1, 0, None]
    assert rows[0]["cpu_cores_used"] == pytest.approx(0.2)
    assert {row[name] for row in rows for name in ("memory_gib_used", "num_failures")} == {None}  # not mapped
    assert rows[2]["response_p95_s"] == pytest.approx(0.2)
    decisions = (tmp_path / "log" / "decisions").glob("*.jsonl")
    assert [len(path.read_text().splitlines()) for path in decisions] == [2]


def test_a_log_that_cannot_be_written_stops_no_decision(tmp_path, bundle, stand_in):
    (tmp_path / "log").write_text("in the way")
    with controlling(tmp_path, bundle, stand_in, ["cart"], log=tmp_path / "log") as controller:
        told = controller.step()
    assert told["deployments"][0]["written"]
    assert "log" in told["log_error"]


def test_series_that_hold_something_else_are_named(tmp_path, bundle, stand_in):
    with controlling(tmp_path, bundle, stand_in) as controller:
        pass
    mapped = next(one for one in controller.metrics.mapping.metrics if one.of_gateway)
    with pytest.raises(MetricsError, match="instants and numbers"):
        controller.metrics._values(mapped, {"values": [[1]]})


def test_what_is_away_or_wrong_is_named(tmp_path, bundle, stand_in):
    stand_in.status = 500
    with (
        controlling(tmp_path, bundle, stand_in) as controller,
        pytest.raises(MetricsError, match="does not answer"),
    ):
        controller.step()
    with pytest.raises(KubeError, match=r"refused PATCH \(500\)"):
        KubeApi(stand_in.url).scale("shop", "cart", 3)
    with controlling(tmp_path, bundle, stand_in) as controller:
        controller.metrics = replace(controller.metrics, token_file=tmp_path / "gone")  # being renewed
        with pytest.raises(MetricsError, match="gone"):
            controller.step()
    with pytest.raises(ConfigError, match="no address of Prometheus"):
        Prometheus("127.0.0.1:9090", controller.metrics.mapping)
    with pytest.raises(ConfigError, match="no API to call"):
        KubeApi("cluster")
    unknown = Granted(*(np.full(1, np.nan),) * 3)
    for resources, words in (
        ({"limits": {"cpu": "250m"}, "requests": {"cpu": "1"}}, "limit lies below its request"),
        ({"limits": {"memory": "512 MB"}}, "no quantity"),
    ):
        spec = {"spec": {"template": {"spec": {"containers": [{"resources": resources}]}}}}
        with pytest.raises(ConfigError, match=words):
            granted_in({"cart": spec}, ("cart",), unknown)


@pytest.mark.parametrize(
    ("asked", "raw", "words"),
    [
        ("cpu", b"no HTTP\r\n\r\n", "no HTTP"),
        ("cpu", http("ff\r\ncut", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked"), "IncompleteRead"),
        ("cpu", http("[" * 100_000), "recursion"),
        ("cpu", http('{"status": "error", "error": "too many samples"}'), "too many samples"),
        ("cpu", http('{"error": "parse error"}', "HTTP/1.0 400 Bad Request"), "400: .*: parse error"),
        ("deployments", b"no HTTP\r\n\r\n", "no HTTP"),
        ("deployments", http('{"items": [{}]}'), "a deployment is not as the API describes it"),
        (
            "deployments",
            http('{"items": [{"metadata": {"name": "cart"}, "spec": {"replicas": null}}]}'),
            "not as",
        ),
        ("horizontalpodautoscalers", http('{"items": [{"spec": {}}]}'), "HorizontalPodAutoscaler is not as"),
    ],
)
def test_broken_answers_are_errors_that_the_next_interval_outlives(
    tmp_path, bundle, stand_in, asked, raw, words
):
    stand_in.raw[asked] = raw
    with controlling(tmp_path, bundle, stand_in, NAMES if "pod" in asked else ()) as controller:
        with pytest.raises(SchedtwinError, match=words):
            controller.refuse_rivals() if "pod" in asked else controller.step()
        del stand_in.raw[asked]
        controller.refuse_rivals()
        assert controller.step()["deployments"][0]["arm"] == POLICY


def test_samples_of_no_calendar_are_left_out(tmp_path, bundle, stand_in):
    answer = stand_in.query({"query": ["cpu"]})
    for row, at in enumerate([math.nan, math.inf, 1e300, None, 10**400]):
        answer["data"]["result"][0]["values"][row] = [at, "1"]
    stand_in.raw["cpu"] = http(json.dumps(answer))
    with controlling(tmp_path, bundle, stand_in) as controller:
        assert [row["arm"] for row in controller.step()["deployments"]] == [POLICY, POLICY]


def test_names_constants_and_single_deployments_are_those_of_the_import(tmp_path, bundle, stand_in):
    pods = json.dumps(stand_in.query({"query": ["cpu"]})).replace('"cart"', '"cart-7"')
    stand_in.raw["cpu"] = http(pods.replace('"front"', '"front-12"'))
    stand_in.raw["p95"] = http(json.dumps(stand_in.query({"query": ["rate"]})))  # of both deployments
    mapping = mapping_in(tmp_path)
    text = mapping.read_text().replace('source = "p95"', 'source = "p95"\nonly = "front"')
    mapping.write_text(f'deployment_pattern = "(.+)-[0-9]+"\n{text}\n[metrics.num_replicas]\nconstant = 2\n')
    samples = Prometheus(stand_in.url, read_mapping(mapping)).samples(
        NOW_S - 20 * INTERVAL_S, NOW_S, INTERVAL_S
    )
    of_cart = {"cpu_cores_used": 0.2, "request_rate_per_s": 10.0, "response_s": 0.05, "num_replicas": 2.0}
    assert samples.row(LAST, "cart") == of_cart
    assert samples.row(LAST, "gateway") == {"request_rate_per_s": 10.0, "response_p95_s": 10.0}


def test_a_bundle_is_inspected_and_other_commands_say_who_runs_it(bundle, capsys):
    assert main(["inspect", str(bundle)]) == 0
    told = capsys.readouterr().out
    assert "95% of the requests within 0.25 s" in told
    assert "1 to 8" in told
    assert main(["inspect", str(bundle), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["checked"]["num_golden"] == 32
    assert [one["name"] for one in found["setting"]["deployments"]] == list(NAMES)
    assert main(["inspect", str(bundle), "--backend", "onnx"]) == 2
    assert main(["serve", str(bundle), "--port", "0"]) == 2
    assert "schedtwin autoscale runs this one" in capsys.readouterr().err
    assert main(["inspect", str(bundle), "--expect", "0" * 64]) == 2
    (bundle / ARRAYS).write_bytes(b"")
    assert main(["inspect", str(bundle)]) == 2
    assert "policy.npz" in capsys.readouterr().err


def test_a_bundle_is_signed_and_trusted(tmp_path, bundle):
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    key = ed25519.Ed25519PrivateKey.generate()
    words = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "private.pem").write_bytes(words)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "public.pem").write_bytes(public)
    with pytest.raises(ProductError, match="not signed"):
        load_scaling(bundle, trust=tmp_path / "public.pem")
    assert main(["sign", str(bundle), "--key", str(tmp_path / "private.pem")]) == 0
    load_scaling(bundle, trust=tmp_path / "public.pem")


def test_the_command_recommends(tmp_path, deciding_once, stand_in, capsys):
    mapping = mapping_in(tmp_path)
    stand_in.last = 10**12  # no metrics of now
    assert main([*deciding_once, "--mapping", str(mapping), "--json"]) == 0
    assert {row["arm"] for row in json.loads(capsys.readouterr().out)["deployments"]} == {HOLD}
    stand_in.status = 500
    # As many as asked for have failed
    assert main([*deciding_once, "--mapping", str(mapping), "--json"]) == 2
    assert main([*deciding_once[:-1], "0", "--mapping", str(mapping)]) == 2
    assert "--decisions 0" in capsys.readouterr().err
    stand_in.status = 200
    few = {name: query for name, query in QUERIES.items() if query != "cpu"}
    assert main([*deciding_once, "--mapping", str(mapping_in(tmp_path, few))]) == 2
    assert "does not name cpu_cores_used" in capsys.readouterr().err
