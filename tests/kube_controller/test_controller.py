"""The controller beside an API server that stands in for Kubernetes: what it writes, and what it leaves alone."""

from pathlib import Path

import numpy as np
import pytest

from logs_schema import Archive, import_log
from offline_rl.kube_controller.controller import ControllerConfig
from offline_rl.kube_controller.kubernetes import Access
from tests.kube_controller.bench import LESS_OCR, MORE_ASR, MORE_OCR, NOTHING, NOW_S, Bench, access, asked
from tests.kube_controller.stand_in import NAMESPACE, StandIn

DEPLOYED = {"ocr-n0": ("ocr", "n0", 2, 2), "asr-n1": ("asr", "n1", 1, 1)}


def test_a_frame_sees_the_cluster_and_makes_its_changes(bench: Bench, api: StandIn) -> None:
    bench.report(running={"ocr": {"n0": 0.5}}, queued={"asr": {"site": 3}, "unknown": {"site": 1}})
    api.deployments["asr-n1"]["asked"] = 2
    api.closed.add("n1")
    found = bench.frame((1, MORE_ASR), (0, MORE_OCR))
    assert found.outcome == "changed"
    assert asked(api) == {"ocr-n0": 3, "asr-n1": 3}
    assert [tried for *_, tried in api.writes] == [True, True, False, False]
    (view,) = bench.seen
    np.testing.assert_array_equal(view.replicas, [[2, 0], [0, 1]])
    np.testing.assert_array_equal(view.adding, [[0, 0], [0, 1]])
    np.testing.assert_array_equal(view.running, [[0.5, 0], [0, 0]])
    np.testing.assert_array_equal(view.queued, [[0], [3]])
    np.testing.assert_array_equal(view.up, [True, False])
    assert view.time_of_day_s == NOW_S % 86400


def test_the_last_frames_loads_are_shown_and_those_that_could_not_be_read_are_unknown(bench: Bench) -> None:
    bench.report(running={"ocr": {"n0": 0.5}}, queued={"asr": {"site": 3}})
    bench.frame((0, NOTHING))
    bench.report(time_s=NOW_S - 3600.0)
    assert bench.frame((0, NOTHING)).outcome == "failed"
    bench.report(running={"ocr": {"n0": 2.0}}, waiting={"ocr": {"n1": 1.0}})
    bench.frame((0, NOTHING))
    first, last = bench.seen
    unknown = [np.nan, np.nan]
    np.testing.assert_array_equal(first.busy, [unknown, unknown, [0.5, 0.0]])
    np.testing.assert_array_equal(last.busy, [[0.5, 0.0], unknown, [2.0, 0.0]])
    np.testing.assert_array_equal(last.requests, [[0.5, 3.0], unknown, [3.0, 0.0]])


def test_without_apply_nothing_is_written(api: StandIn, tmp_path: Path) -> None:
    idle = Bench(access(api), tmp_path, applies=False)
    found = idle.frame((0, MORE_OCR))
    assert (found.outcome, [one.replicas for one in found.writes]) == ("dry_run", [3])
    assert not api.writes
    assert api.lease is None


def test_a_bundle_for_another_cluster_is_named(bench: Bench, api: StandIn) -> None:
    api.deployments = {"web": {"service": "web", "node": "n7", "asked": 1, "ready": 1, "version": 1}}
    reason = bench.frame((0, MORE_OCR)).reason
    assert "web on n7" in reason
    assert "services ocr, asr" in reason
    api.deployments = {}
    assert "where: none" in bench.frame((0, MORE_OCR)).reason


def test_two_deployments_of_one_place_change_nothing(bench: Bench, api: StandIn) -> None:
    api.deployments["ocr-n0-old"] = {"service": "ocr", "node": "n0", "asked": 1, "ready": 1, "version": 1}
    reason = bench.frame((0, MORE_OCR)).reason
    assert "two deployments hold service ocr on node n0" in reason
    assert "deployments ocr-n0, ocr-n0-old" in reason
    assert not api.writes


@pytest.mark.parametrize("content", [None, "<html>", [], {}, {"items": None}, {"items": [{}]}, {"items": 3}])
@pytest.mark.parametrize("what", ["/deployments", "/nodes", "/leases"])
def test_what_is_no_answer_of_the_api_fails_a_frame_and_the_next_one_goes_on(
    bench: Bench, api: StandIn, what: str, content: object
) -> None:
    usual = api.answer
    api.answer = lambda method, path, body: (200, content) if what in path else usual(method, path, body)
    found = bench.frame((0, MORE_OCR))
    assert found.outcome == "failed"
    assert "not as the API describes it" in found.reason
    api.answer = usual
    assert bench.frame((0, MORE_OCR)).outcome == "changed"


def test_a_write_whose_answer_cannot_be_read_is_taken_back(bench: Bench, api: StandIn) -> None:
    usual, asks = api._scale, []

    def scale(method: str, name: str, content: dict, only_try: bool) -> tuple[int, object]:
        answer = usual(method, name, content, only_try)
        asks.append((method, only_try))
        return (200, "<html>") if asks.count(("PUT", False)) == 2 and len(asks) == 4 else answer

    api._scale = scale
    assert bench.frame((1, MORE_ASR), (0, MORE_OCR)).outcome == "failed"
    assert asked(api) == {"ocr-n0": 2, "asr-n1": 1}


def test_a_lease_that_says_nothing_yet_is_taken(bench: Bench, api: StandIn) -> None:
    meta = {"name": "schedtwin-orchestrate", "resourceVersion": "1"}
    api.lease = {"metadata": meta | {"annotations": {"schedtwin.io/paused": "true"}}}
    assert bench.frame((0, MORE_OCR)).outcome == "paused"
    assert api.lease["spec"]["holderIdentity"] == "me"


def test_a_replica_goes_only_when_it_is_idle(bench: Bench, api: StandIn) -> None:
    bench.report(running={"ocr": {"n0": 1.5}})
    assert bench.frame((0, LESS_OCR)).outcome == "nothing_to_change"
    assert bench.seen[-1].removing.sum() == 0.0
    assert bench.frame((0, NOTHING)).outcome == "nothing_to_change"
    assert bench.seen[-1].removing[0, 0] == 1.0  # it waits
    bench.report(running={"ocr": {"n0": 0.9}})
    assert bench.frame((0, NOTHING)).outcome == "changed"
    assert asked(api)["ocr-n0"] == 1
    api.deployments["ocr-n0"]["ready"] = 1
    # The last one: nobody at all was served
    for load, outcome in ((0.01, "nothing_to_change"), (0.0, "changed")):
        bench.report(running={"ocr": {"n0": load}})
        assert bench.frame((0, LESS_OCR if load else NOTHING)).outcome == outcome
    assert asked(api)["ocr-n0"] == 0


def test_a_frame_keeps_its_limit_and_says_what_it_left_out(bench: Bench) -> None:
    found = bench.frame((0, MORE_OCR), (1, MORE_ASR), (1, MORE_OCR))
    assert (len(found.writes), found.left_out) == (2, ["no deployment of service ocr on node n1"])
    bench.controller._config = ControllerConfig(str(bench.loads), True, 1)
    assert bench.frame((0, MORE_OCR), (1, MORE_ASR)).left_out == ["over the limit of 1 changes a frame"]


@pytest.mark.parametrize(
    ("fault", "answer", "kind"),
    [
        ("list", 403, "denied"),
        ("try", 403, "denied"),
        ("write", 403, "denied"),
        ("write", 409, "conflict"),
        ("write", 500, "unreachable"),
        ("write", 2.0, "unreachable"),
        ("lease", 403, "denied"),
    ],
)
def test_what_fails_leaves_no_half_made_frame(
    bench: Bench, api: StandIn, fault: str, answer: float, kind: str
) -> None:
    number = 1 if fault in ("list", "lease") else 2
    api.faults[fault, number] = answer
    found = bench.frame((1, MORE_ASR), (0, MORE_OCR))
    assert found.outcome == "failed"
    assert asked(api) == {"ocr-n0": 2, "asr-n1": 1}
    assert bench.metrics.failures.labels(kind)._value.get() == 1
    assert bench.frame((1, MORE_ASR), (0, MORE_OCR)).outcome == "changed"
    assert asked(api) == {"ocr-n0": 3, "asr-n1": 2}


def test_what_somebody_else_has_changed_is_not_taken_back(bench: Bench, api: StandIn) -> None:
    api.faults["write", 2] = 409
    usual = bench.cluster.desired
    bench.cluster.desired = lambda name: usual(name) + 4
    assert bench.frame((1, MORE_ASR), (0, MORE_OCR)).outcome == "failed"
    assert asked(api)["asr-n1"] == 2


@pytest.mark.parametrize("time_s", [NOW_S - 60.0, NOW_S + 60.0])
def test_nothing_is_changed_by_loads_of_another_time(bench: Bench, api: StandIn, time_s: float) -> None:
    bench.report(time_s=time_s)
    assert "the loads are" in bench.frame((0, MORE_OCR)).reason
    bench.loads.write_text('{"time_s": 1.7e9, "running": {"ocr": {"n0": -1}}}')
    assert "ocr at n0: -1" in bench.frame((0, MORE_OCR)).reason
    bench.loads.unlink()
    assert "the loads cannot be read" in bench.frame((0, MORE_OCR)).reason
    assert not api.writes


def test_one_of_two_leads_until_it_no_longer_renews_and_pauses_where_the_lease_says(
    bench: Bench, api: StandIn
) -> None:
    other = bench.leading("other")
    assert bench.frame((0, NOTHING)).outcome == "nothing_to_change"
    assert not other.leads()
    bench.forward_s = 49.0
    assert not other.leads()
    bench.forward_s = 51.0
    assert other.leads()
    assert bench.frame((0, MORE_OCR)).outcome == "follows"
    other.resign()
    api.lease["metadata"]["annotations"] = {"schedtwin.io/paused": "true"}
    assert bench.frame((0, MORE_OCR)).outcome == "paused"
    assert not api.writes
    api.lease["metadata"]["annotations"] = {}
    assert bench.frame((0, MORE_OCR)).outcome == "changed"


def test_the_log_is_a_table_of_replicas(bench: Bench, api: StandIn, tmp_path: Path) -> None:
    assert bench.frame((0, MORE_OCR)).outcome == "changed"
    api.deployments["ocr-n0"]["ready"] = 3
    bench.now_s += 25.0
    bench.report(time_s=bench.now_s)
    assert bench.frame((0, NOTHING)).outcome == "nothing_to_change"
    bench.recording.close()
    report = import_log("native", [tmp_path / "log" / "replicas"], tmp_path / "archive")
    assert dict(report.quarantined) == {}
    rows = Archive(tmp_path / "archive").read("replicas").to_pylist()
    counts = [(row["service"], row["node_id"], row["num_replicas"]) for row in rows]
    assert counts == [("asr", "n1", 1), ("ocr", "n0", 2), ("ocr", "n0", 3)]


def test_a_token_that_was_replaced_is_used_from_the_next_request_on(api: StandIn, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    bench = Bench(Access(api.url, token, namespace=NAMESPACE, timeout_s=1.0), tmp_path)
    bench.frame((0, NOTHING))
    assert set(api.tokens) == {"Bearer first"}
    api.tokens.clear()
    token.write_text("second\n")
    assert bench.frame((0, NOTHING)).outcome == "nothing_to_change"
    assert set(api.tokens) == {"Bearer second"}
    for content in (b"", b"\xff"):
        token.write_bytes(content)
        assert "there is no token" in bench.frame((0, NOTHING)).reason
    token.unlink()
    assert "FileNotFoundError" in bench.frame((0, NOTHING)).reason
    token.write_text("third")
    assert bench.frame((0, NOTHING)).outcome == "nothing_to_change"
