"""Instants that callers name: those that cannot be are refused, and nothing is learned from them."""

import pytest

from offline_rl.serving.app import App
from tests.serving.making import asked, made_service, metric

NOW_S = 1_700_000_000.0


@pytest.mark.parametrize("arrival", [5, "1970-01-01T00:00:05Z", NOW_S + 3 * 86_400])
def test_an_arrival_far_from_the_clock_is_refused_with_both_instants(arrival):
    app = App(made_service(clock=lambda: NOW_S))
    status, answer = asked(app, "/decide", {"request": {"request_id": "r", "arrival": arrival}})
    assert status == 400
    assert "request.arrival" in answer["error"]
    assert "2023-11-14T22:13:20Z" in answer["error"]
    assert not app.service.cluster.placements
    for near in (NOW_S - 3600, NOW_S + 2, None):
        assert asked(app, "/decide", {"request": {"request_id": "r", "arrival": near}})[0] == 200


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([("finish", -60)], "end before it was decided"),
        ([("start", -60)], "start before it was decided"),
        ([("start", 40), ("finish", 10)], "end before it was started"),
    ],
)
def test_an_event_before_what_it_follows_is_refused_and_the_others_of_the_call_count(events, words):
    now = [NOW_S]
    app = App(made_service(clock=lambda: now[0]))
    for name in ("r", "other"):
        assert asked(app, "/decide", {"request": {"request_id": name}})[0] == 200
    now[0] += 50.0  # before its assumed end
    told = [{"request_id": "r", "event": event, "time": NOW_S + after_s} for event, after_s in events]
    told.append({"request_id": "other", "event": "start", "time": NOW_S + 5})
    status, answer = asked(app, "/events", told)
    assert (status, answer["known"], answer["unknown"]) == (200, len(events), 0)
    assert [(one["index"], words in one["error"]) for one in answer["refused"]] == [(len(events) - 1, True)]
    assert app.service.cluster.placements["other"].start_s == NOW_S + 5
    assert app.service.cluster.placements["r"].start_s == (NOW_S + 40 if len(events) == 2 else None)
    assert metric(app.service, "refused_events_total") == 1.0
    right = [{"request_id": "r", "event": "start", "time": NOW_S - 1}, {"request_id": "r", "event": "finish"}]
    assert asked(app, "/events", right) == (200, {"known": 2, "unknown": 0})


def test_a_call_of_impossible_events_alone_is_refused():
    app = App(made_service(clock=lambda: NOW_S))
    assert asked(app, "/decide", {"request": {"request_id": "r"}})[0] == 200
    status, answer = asked(app, "/events", {"request_id": "r", "event": "finish", "time": NOW_S - 60})
    assert (status, answer["known"], answer["error"]) == (400, 0, answer["refused"][0]["error"])


@pytest.mark.parametrize("time", [{}, {"time": NOW_S + 1}])
def test_what_happens_now_counts_although_the_clock_was_set_back_since_the_decision(time):
    now = [NOW_S]
    app = App(made_service(clock=lambda: now[0]))
    assert asked(app, "/decide", {"request": {"request_id": "r"}})[0] == 200
    now[0] -= 3600.0
    for event in ("start", "finish"):
        told = {"request_id": "r", "event": event} | time
        assert asked(app, "/events", told) == (200, {"known": 1, "unknown": 0})
    assert not app.service.cluster.placements
