"""Which replicas stay although the orchestrator would remove them: what a report of loads does not say is not idle."""

from tests.kube_controller.bench import LESS_OCR, MORE_OCR, NOTHING, Bench, asked
from tests.kube_controller.stand_in import StandIn

LESS_ASR = 4
DEPLOYED: dict[str, tuple[str, str, int, int]] = {
    "ocr-n0": ("ocr", "n0", 1, 1),
    "ocr-n1": ("ocr", "n1", 1, 1),
    "asr-n0": ("asr", "n0", 1, 1),
}


def test_nothing_goes_from_a_place_that_the_loads_do_not_name(bench: Bench, api: StandIn) -> None:
    bench.report(running={"ocr": {"n0": 0.5}})
    found = bench.frame((0, LESS_ASR), (1, LESS_OCR))
    assert found.outcome == "nothing_to_change"
    assert found.left_out == [
        "the loads do not name service asr on node n0: none goes",
        "the loads do not name service ocr on node n1: none goes",
    ]
    bench.report()
    assert bench.frame((0, LESS_ASR)).outcome == "nothing_to_change"
    assert asked(api) == {"ocr-n0": 1, "ocr-n1": 1, "asr-n0": 1}
    bench.report(waiting={"asr": {"n0": 0.0}})
    assert bench.frame((0, LESS_ASR)).outcome == "changed"
    assert asked(api)["asr-n0"] == 0


def test_a_removal_waits_while_its_place_is_not_named(bench: Bench, api: StandIn) -> None:
    bench.report(running={"asr": {"n0": 0.5}})
    assert bench.frame((0, LESS_ASR)).outcome == "nothing_to_change"
    bench.report()
    assert bench.frame((0, NOTHING)).outcome == "nothing_to_change"
    bench.report(running={"asr": {"n0": 0.0}})
    assert bench.frame((0, NOTHING)).outcome == "changed"
    assert asked(api)["asr-n0"] == 0


def test_the_last_replica_anywhere_stays_while_requests_are_queued(bench: Bench, api: StandIn) -> None:
    idle = {"ocr": {"n0": 0.0, "n1": 0.0}}
    bench.report(running=idle, queued={"ocr": {"site": 2.0}})
    assert bench.frame((0, LESS_OCR), (1, LESS_OCR)).outcome == "changed"
    assert asked(api) == {"ocr-n0": 0, "ocr-n1": 1, "asr-n0": 1}
    api.deployments["ocr-n0"]["ready"] = 0
    # one that was asked for and cannot serve yet is no other replica
    assert bench.frame((0, MORE_OCR)).outcome == "changed"
    assert bench.frame((0, NOTHING)).outcome == "nothing_to_change"
    assert asked(api) == {"ocr-n0": 1, "ocr-n1": 1, "asr-n0": 1}
    bench.report(running=idle, queued={"asr": {"site": 2.0}})
    assert bench.frame((0, NOTHING)).outcome == "changed"
    assert asked(api)["ocr-n1"] == 0


def test_a_removal_that_waited_before_a_pause_is_decided_anew_after_it(bench: Bench, api: StandIn) -> None:
    bench.report(running={"asr": {"n0": 0.5}})
    assert bench.frame((0, LESS_ASR)).outcome == "nothing_to_change"
    api.lease["metadata"]["annotations"] = {"schedtwin.io/paused": "true"}
    assert bench.frame((0, NOTHING)).outcome == "paused"
    api.lease["metadata"]["annotations"] = {}
    bench.report(running={"asr": {"n0": 0.0}})
    assert bench.frame((0, NOTHING)).outcome == "nothing_to_change"
    assert asked(api)["asr-n0"] == 1
    assert bench.frame((0, LESS_ASR)).outcome == "changed"
