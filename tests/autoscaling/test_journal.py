"""What an operator is told and what the log keeps: refusals, rivals, restarts, decisions that could not be made."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from evaluation.commands import autoscale
from evaluation.commands.cli import main
from logs_schema.errors import ConfigError
from logs_schema.formats.mapping import read_mapping
from offline_rl.runner.scaling import ScalingPolicy
from offline_rl.serving.kube_api import KubeApi, KubeError
from offline_rl.serving.prometheus import MetricsError, Prometheus, refuse_unmapped
from offline_rl.serving.scaling_guard import HOLD, POLICY, Guard, GuardConfig
from tests.autoscaling.guarded import NAMES, policy_of, setting_of
from tests.autoscaling.standing_in import QUERIES, controlling, http, mapping_in


@pytest.fixture
def every(tmp_path, bundle, stand_in):
    """A controller that writes all deployments, and logs."""
    with controlling(tmp_path, bundle, stand_in, NAMES, log=tmp_path / "log") as controller:
        yield controller


def decisions_in(folder):
    (path,) = (folder / "decisions").glob("*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_restart_repeats_no_interval_in_the_log(tmp_path, every, bundle, stand_in):
    every.step()
    with controlling(tmp_path, bundle, stand_in, NAMES, log=tmp_path / "log") as again:
        again.step()
    (path,) = (tmp_path / "log" / "deployment_samples").glob("*.csv")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["deployment"] for row in rows] == [*NAMES, "gateway"]
    assert len(decisions_in(tmp_path / "log")) == 2


def test_a_decision_that_could_not_be_made_is_logged_with_why(tmp_path, every, stand_in):
    stand_in.raw["cpu"] = http('{"error": "too many samples"}', "HTTP/1.0 422 Unprocessable")
    with pytest.raises(MetricsError):
        every.step()
    (found,) = decisions_in(tmp_path / "log")
    assert "too many samples" in found["error"]
    assert "what to do: try the query" in found["error"]
    assert found["deployments"] == []


def test_a_refusal_is_told_in_words_with_what_to_do(every, stand_in, monkeypatch):
    usual = every.kube.scale

    def scale(*arguments):
        stand_in.status = 422
        try:
            usual(*arguments)
        finally:
            stand_in.status = 200

    monkeypatch.setattr(KubeApi, "scale", lambda _self, *arguments: scale(*arguments))
    decision = every.step()
    assert [row["written"] for row in decision["deployments"]] == [False, False]
    told = autoscale._text(decision)
    assert told.count("not written: the API refused PATCH (422)") == 2
    assert "a quota, a limit or an admission rule" in told


@pytest.mark.parametrize(
    ("status", "words"), [(401, "a token"), (403, "rights"), (409, "wrote first"), (429, "load")]
)
def test_every_refusal_has_its_own_advice(stand_in, status, words):
    stand_in.status = status
    with pytest.raises(KubeError) as refused:
        KubeApi(stand_in.url).scale("shop", "cart", 3)
    assert words in refused.value.advice
    assert bool(refused.value.allowed) is (status in (401, 403))


def test_replicas_that_somebody_changes_back_are_told(every, stand_in):
    every.step()
    stand_in.replicas["cart"] = 2
    rows = every.step()["deployments"]
    assert rows[0]["written"]
    assert "3 replicas were written and 2 are there" in rows[0]["error"]
    assert rows[1]["error"] == ""
    assert "but 3 replicas were written" in autoscale._text({"time": "now", "deployments": rows})


def test_a_pod_autoscaler_that_comes_later_is_nobodys_rival(every, stand_in):
    every.refuse_rivals()
    stand_in.ruled = ["cart"]
    rows = every.step()["deployments"]
    assert [row["written"] for row in rows] == [False, True]
    assert "HorizontalPodAutoscaler rules it now" in rows[0]["error"]
    assert stand_in.replicas["cart"] == 2
    stand_in.raw["horizontalpodautoscalers"] = http("{}", "HTTP/1.0 403 Forbidden")
    rows = every.step()["deployments"]
    assert not any(row["written"] for row in rows)  # who rules is not known
    assert all("cannot be listed" in row["error"] for row in rows)


def test_a_deployment_that_the_bundle_does_not_know_is_named_once(every, stand_in, capsys):
    answer = stand_in.query({"query": ["cpu"]})
    answer["data"]["result"].append({"metric": {"deployment": "wishes"}, "values": []})
    answer["data"]["result"][-1]["values"] = answer["data"]["result"][0]["values"]
    stand_in.raw["cpu"] = http(json.dumps(answer))
    over = SimpleNamespace(is_set=lambda: False, wait=lambda _seconds: None)
    autoscale._decide(every, SimpleNamespace(json=False, decisions=2), over)
    assert capsys.readouterr().err.count("metrics tell of wishes, which the bundle does not know") == 1


def test_metrics_that_no_cluster_stands_beside_have_to_tell_what_is_granted(
    tmp_path, bundle, stand_in, capsys
):
    arguments = ["autoscale", str(bundle), "--prometheus", stand_in.url, "--decisions", "1"]
    assert main([*arguments, "--mapping", str(mapping_in(tmp_path))]) == 2
    told = capsys.readouterr().err
    assert "does not name cpu_cores, num_replicas" in told
    assert "or give --kube" in told
    (tmp_path / "whole.toml").write_text(
        "".join(f"[metrics.{name}]\n" for name in ("cpu_cores_used", "cpu_cores", "num_replicas"))
    )
    refuse_unmapped(read_mapping(tmp_path / "whole.toml"), "hpa", of_grants=True)
    with pytest.raises(ConfigError, match="request_rate_per_s"):
        refuse_unmapped(read_mapping(tmp_path / "whole.toml"), "students", of_grants=True)


def test_what_is_no_deployment_is_granted_what_metrics_tell_and_not_written(tmp_path, bundle, stand_in):
    """A database is a StatefulSet, and one network may decide for all."""
    del stand_in.replicas["front"]
    stand_in.values |= {"replicas": 2, "cores": 0.5, "memory": 0.5}
    granted = {"num_replicas": "replicas", "cpu_cores": "cores", "memory_gib": "memory"}
    for writes, arm in ((("cart",), POLICY), (NAMES, HOLD)):
        with controlling(tmp_path, bundle, stand_in, writes) as controller:
            mapping = mapping_in(tmp_path, QUERIES | granted)
            controller.metrics = Prometheus(stand_in.url, read_mapping(mapping))
            row = controller.step()["deployments"][1]
        assert (row["arm"], row["written"]) == (arm, False)
    assert "no such deployment" in row["error"]  # one that is written and has gone


def test_all_are_written_but_those_that_keep_their_replicas():
    cart, front = setting_of().deployments
    fixed = replace(setting_of(), deployments=(cart, replace(front, min_replicas=8)))
    policy = ScalingPolicy(fixed, policy_of(0.6)[1])
    assert Guard(policy, GuardConfig()).written == ("cart",)
    assert Guard(policy, GuardConfig(resources=True)).written == NAMES
