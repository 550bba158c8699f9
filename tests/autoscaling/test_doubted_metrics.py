"""Metrics that cannot be, that come late, and clocks apart: nothing is taken away for them, and it is said why."""

import json
import math
from dataclasses import replace
from email.utils import formatdate
from time import time

import numpy as np
import pytest

from evaluation.commands.cli import main
from logs_schema.formats.mapping import read_mapping
from offline_rl.runner.scaling import Granted, ScalingPolicy
from offline_rl.serving.prometheus import MetricsError, Prometheus
from offline_rl.serving.scaling_guard import FALLBACK, HOLD, POLICY, Guard, GuardConfig
from tests.autoscaling.guarded import GRANTED, INTERVAL_S, NAMES, policy_of, readings, setting_of
from tests.autoscaling.standing_in import LAST, NOW_S, QUERIES, controlling, http, mapping_in

FEWER, _ = policy_of(-0.6)
"""Students that always remove replicas."""
WORK_S = 0.04
"""Core-seconds of a request at the gateway: .4 cores at the 10 requests a second of `readings`."""


def guard_of(form="students"):
    policy = FEWER if form == "students" else ScalingPolicy(setting_of(form), {})
    deployments = tuple(replace(one, core_s_per_request=WORK_S) for one in policy.setting.deployments)
    arrays = policy_of(-0.6)[1] if form == "students" else {}
    return Guard(ScalingPolicy(replace(policy.setting, deployments=deployments), arrays), GuardConfig())


@pytest.mark.parametrize("form", ["students", "hpa"])
@pytest.mark.parametrize("cores", [200.0, 0.2e-3], ids=["millicores_as_cores", "cores_as_millicores"])
def test_a_use_of_processors_that_cannot_be_changes_nothing(form, cores):
    guard, odd = guard_of(form), readings(cores=cores)
    for now_s in (0.0, 400.0):  # the window of the rules is over
        found = guard.decide(now_s, GRANTED, odd, odd)
        assert found.arms == (HOLD, HOLD)
        np.testing.assert_array_equal(found.wanted.replicas, GRANTED.replicas)
        assert "is the unit right" in found.reasons[0]


def test_little_is_used_where_little_is_asked_for():
    guard = guard_of()
    for change in ({"gateway_rate_per_s": np.asarray(0.1)}, {"rate_per_s": np.full(2, 0.1)}):
        quiet = readings(cores=2e-6)._replace(**change)
        assert guard.decide(0.0, GRANTED, quiet, quiet).arms == (POLICY, POLICY)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory_gib_used": np.full(2, 3e8)}, "3e+08 GiB used by a replica of 0.5"),
        ({"response_s": np.full(2, 50.0)}, "50 s a call, the objective is 0.25"),
        ({"gateway_quantile_s": np.asarray(200.0)}, "200 s a request, the objective is 0.25"),
    ],
)
def test_metrics_of_another_unit_are_for_the_rules(change, words):
    odd = readings()._replace(**change)
    found = guard_of().decide(0.0, GRANTED, odd, readings())
    assert found.arms == (FALLBACK, FALLBACK)
    assert words in found.reasons[0]


def test_a_reason_names_the_metrics_that_are_missing():
    lacking = readings()._replace(response_s=np.array([0.05, np.nan]))
    before = readings()._replace(rate_per_s=np.array([np.nan, np.nan]))
    found = guard_of().decide(0.0, GRANTED, lacking, before)
    assert found.reasons[0].endswith("missing: request_rate_per_s of before")
    assert found.reasons[1].endswith("missing: request_rate_per_s of before, response_s")
    users = readings()._replace(gateway_quantile_s=np.asarray(np.nan))
    assert guard_of().decide(0.0, GRANTED, users, readings()).reasons[0].endswith("known: response_p95_s")


def test_a_reason_says_which_limit_has_cut_what_was_asked_for():
    rule = Guard(ScalingPolicy(setting_of("hpa"), {}), GuardConfig(most_added=3, most_removed=1))
    busy, idle = readings(cores=0.8), readings(cores=0.01)
    few, most = GRANTED, GRANTED._replace(replicas=np.array([6.0, 7.0]))
    found = rule.decide(0.0, few, busy, busy)
    np.testing.assert_array_equal(found.wanted.replicas, [5.0, 5.0])
    assert found.reasons[0] == "7 replicas asked for, at most 3 are added at once"
    found = rule.decide(30.0, most, busy._replace(ready=most.replicas), busy)
    assert found.reasons[0] == "20 replicas asked for, 1 to 8 are allowed"
    found = rule.decide(400.0, most, idle, idle)
    np.testing.assert_array_equal(found.wanted.replicas, [5.0, 6.0])
    assert found.reasons[0] == "1 replica asked for, at most 1 are removed at once"
    assert rule.decide(430.0, few, readings(cores=0.25), busy).reasons == ("", "")


def test_a_number_below_zero_is_no_number(tmp_path, bundle, stand_in):
    stand_in.values["cpu"] = -300.0
    with controlling(tmp_path, bundle, stand_in, NAMES) as controller:
        rows = controller.step()["deployments"]
    assert [row["arm"] for row in rows] == [HOLD, HOLD]
    assert rows[0]["reason"].endswith("missing: cpu_cores_used")
    assert stand_in.written == []


def test_of_a_metric_with_two_series_one_deployment_is_without(tmp_path, bundle, stand_in):
    usual = stand_in.query

    def doubled(asked):
        answer = usual(asked)
        if asked["query"] == ["cpu"]:
            series = answer["data"]["result"]
            series.append({**series[0], "metric": {**series[0]["metric"], "replica": "b"}})
        return answer

    stand_in.query = doubled
    with controlling(tmp_path, bundle, stand_in, NAMES) as controller:
        found, other = controller.step()["deployments"]
        assert (found["arm"], other["arm"]) == (HOLD, POLICY)
        assert f"two series give cpu_cores_used of '{NAMES[0]}'" in found["reason"]
        assert other["wanted"]["replicas"] > other["granted"]["replicas"]
        assert [path.split("/")[-2] for path, _ in stand_in.written] == [NAMES[1]]
        stand_in.query = usual
        assert [row["arm"] for row in controller.step()["deployments"]] == [POLICY, POLICY]


def test_metrics_that_come_an_interval_after_the_others_are_waited_for(tmp_path, bundle, stand_in):
    """Else what is always late would be missing for ever."""
    usual = stand_in.query

    def late(asked):
        answer = usual(asked)
        for series in answer["data"]["result"] if asked["query"] == ["cpu"] else ():
            series["values"] = series["values"][:-1]
        return answer

    stand_in.query = late
    with controlling(tmp_path, bundle, stand_in) as controller:
        assert [row["arm"] for row in controller.step()["deployments"]] == [POLICY, POLICY]
        samples = controller.metrics.samples(NOW_S - 20 * INTERVAL_S, NOW_S, INTERVAL_S)
        assert controller._latest(samples, LAST) == LAST - 1


@pytest.mark.parametrize(
    ("ahead_s", "words"), [(240.0, r"2[34]\d s ahead of"), (-240.0, r"24\d s behind"), (1.0, "")]
)
def test_clocks_that_stand_apart_stop_decisions(tmp_path, ahead_s, words):
    metrics = Prometheus("http://nowhere", read_mapping(mapping_in(tmp_path)))
    date = formatdate(time() + ahead_s, usegmt=True)
    if words:
        with pytest.raises(MetricsError, match=words):
            metrics._refuse_skew(date, INTERVAL_S)
    else:
        metrics._refuse_skew(date, INTERVAL_S)
        metrics._refuse_skew("", INTERVAL_S)  # of no date nothing is known


def test_one_network_over_all_says_who_is_unlike_training():
    teacher = Guard(ScalingPolicy(setting_of("teacher"), policy_of(0.6)[1]), GuardConfig())
    teacher.policy.decide = lambda *_: Granted(*(np.full(2, math.nan),) * 3)
    lacking = readings()._replace(response_s=np.array([0.05, np.nan]))
    found = teacher.decide(0.0, GRANTED, lacking, readings())
    assert found.reasons[0] == "front: unlike training, and one network decides for all"


def test_series_of_pods_are_combined_as_at_the_import(tmp_path, stand_in):
    answer = stand_in.query({"query": ["cpu"]})
    answer["data"]["result"] = [
        {"metric": {"deployment": f"cart-{pod}"}, "values": [[LAST * INTERVAL_S, number]]}
        for pod, number in ((1, "100"), (2, "300"))
    ]
    stand_in.raw["cpu"] = http(json.dumps(answer))
    mapping = mapping_in(tmp_path)
    text = mapping.read_text().replace('source = "cpu"', 'source = "cpu"\ncombine = "mean"')
    mapping.write_text(f'deployment_pattern = "(.+)-[0-9]+"\n{text}')
    samples = Prometheus(stand_in.url, read_mapping(mapping)).samples(NOW_S - 600.0, NOW_S, INTERVAL_S)
    assert samples.row(LAST, "cart")["cpu_cores_used"] == pytest.approx(0.2)


def test_nothing_is_taken_away_by_answers_in_parts(tmp_path, stand_in, bundle):
    """A store that did not answer makes sums small."""
    guard = guard_of()
    assert guard.decide(0.0, GRANTED, readings(), readings()).wanted.replicas.tolist() == [1.0, 1.0]
    found = guard.decide(0.0, GRANTED, readings(), readings(), partial="a store is away")
    assert found.wanted.replicas.tolist() == [2.0, 2.0]
    assert found.reasons == ("1 replica asked for, a store is away",) * 2
    assert found.arms == (POLICY, POLICY)
    beyond = GRANTED._replace(replicas=np.array([20.0, 2.0]))
    found = guard.decide(0.0, beyond, readings(), readings(), partial="a store is away")
    assert found.wanted.replicas.tolist() == [20.0, 2.0]
    arrays = policy_of(0.0)[1]
    arrays["Dense_2/bias"][:, 0] = -2.0  # fewer cores
    smaller = Guard(ScalingPolicy(setting_of(), arrays), GuardConfig(resources=True))
    cores = [
        smaller.decide(0.0, GRANTED, readings(), readings(), partial=why).wanted.cpu_cores[0]
        for why in ("", "a store is away")
    ]
    assert cores[0] < cores[1] == 0.5
    answer = stand_in.query({"query": ["rate"]}) | {"warnings": ["no store answered"]}
    stand_in.raw["rate"] = http(json.dumps(answer))
    with controlling(tmp_path, bundle, stand_in) as controller:
        controller.guard = guard
        assert "Prometheus warns" in controller.step()["deployments"][0]["reason"]
        del stand_in.raw["rate"]
        assert controller.step()["deployments"][0]["wanted"]["replicas"] == 1.0


def test_replicas_that_do_not_become_ready_are_told_with_how_long(tmp_path, stand_in, bundle):
    stand_in.values["ready"], stand_in.replicas = 2, {"cart": 6, "front": 2}
    now_s = [NOW_S]
    with controlling(tmp_path, bundle, stand_in) as controller:
        mapping = mapping_in(tmp_path, QUERIES | {"ready_replicas": "ready"})
        controller.metrics = Prometheus(stand_in.url, read_mapping(mapping))
        controller.clock = lambda: now_s[0]
        for minutes, ready, words in (
            (0, 2, ""),
            (4, 2, ""),
            (5, 2, "2 of 6 replicas are ready, and no more for 5 min: has the cluster room"),
            (6, 3, ""),
            (11, 3, "3 of 6 replicas are ready"),
            (12, 6, ""),
        ):
            stand_in.values["ready"], now_s[0] = ready, NOW_S + 60.0 * minutes
            stand_in.last = LAST + 2 * minutes
            rows = controller.step()["deployments"]
            assert words in rows[0]["reason"]
            assert ("has the cluster room" in rows[0]["reason"]) is bool(words)
            assert "room" not in rows[1]["reason"]


def test_a_mapping_of_other_intervals_than_the_bundles_is_refused(tmp_path, deciding_once, capsys):
    mapping = mapping_in(tmp_path)
    for interval_s, status in ((15, 2), (30, 0)):
        (tmp_path / "other.toml").write_text(f"interval_s = {interval_s}\n{mapping.read_text()}")
        assert main([*deciding_once, "--mapping", str(tmp_path / "other.toml")]) == status
    assert "of intervals of 15 s, and " in capsys.readouterr().err


def test_no_query_is_asked_after_a_signal(tmp_path, stand_in):
    """Of many slow ones, a process would end long after its time of grace."""
    asked, usual = [], stand_in.query
    stand_in.query = lambda query: asked.append(query["query"]) or usual(query)
    metrics = Prometheus(stand_in.url, read_mapping(mapping_in(tmp_path)), is_over=lambda: len(asked) == 2)
    with pytest.raises(MetricsError, match="stopped before all metrics were read"):
        metrics.samples(NOW_S - 600.0, NOW_S, INTERVAL_S)
    assert len(asked) == 2


@pytest.mark.parametrize(
    ("most", "replicas", "cut"),
    [
        (10.0, [4.0, 4.0], [False, False]),
        (3.5, [3.0, 4.0], [True, False]),  # front works hardest, until it has twice the replicas
        (2.9, [2.0, 3.0], [True, True]),
        (2.0, [2.0, 2.0], [True, True]),
        (1.0, [2.0, 2.0], [True, True]),  # nothing is taken away for a bound
    ],
)
def test_cores_that_are_short_go_to_who_works_hardest(most, replicas, cut):
    busy = readings(cores=0.5)._replace(cpu_cores_used=np.array([0.45, 0.5]))
    guard = Guard(ScalingPolicy(setting_of("hpa"), {}), GuardConfig(max_cores=most))
    found = guard.decide(0.0, GRANTED, busy, busy)
    assert found.wanted.replicas.tolist() == replicas
    assert [f"{most:g} are allowed" in reason for reason in found.reasons] == cut
    assert (found.wanted.replicas * found.wanted.cpu_cores).sum() <= max(most, 2.0)


@pytest.mark.parametrize(
    ("late", "replicas", "words"), [(1, 1.0, ""), (2, 2.0, "2 intervals old"), (4, 2.0, "4 int")]
)
def test_metrics_older_than_in_training_take_nothing_away(tmp_path, stand_in, bundle, late, replicas, words):
    stand_in.last = LAST - late
    with controlling(tmp_path, bundle, stand_in) as controller:
        controller.guard = guard_of()
        row = controller.step()["deployments"][0]
    assert (row["arm"], row["wanted"]["replicas"]) == (POLICY, replicas)
    assert words in row["reason"]
    assert bool(row["reason"]) is bool(words)
