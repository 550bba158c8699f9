"""What happens while the policy is still asked: another bundle comes into use, a request starts or ends."""

import asyncio
import threading
import time
from dataclasses import replace

import pytest

from logs_schema import Archive, import_log
from offline_rl.runner import Node
from offline_rl.serving.app import App
from offline_rl.serving.config import ServiceConfig
from offline_rl.serving.plain import RequestEvent
from tests.serving.making import asked, made_policy, made_service
from tests.serving.test_decision_log import lines_of
from tests.serving.test_service import query


@pytest.mark.parametrize("shadow", [False, True])
def test_a_decision_is_that_of_the_bundle_that_was_asked_although_another_is_in_use_by_then(tmp_path, shadow):
    release = threading.Event()
    policies = iter(
        [made_policy(lambda decision: release.wait(60) and decision, "one"), made_policy(content_hash="two")]
    )
    config = ServiceConfig(deadline_s=5.0, seed=0, shadow=shadow)
    service = made_service(lambda: next(policies), config, tmp_path)

    async def live() -> None:
        first = asyncio.create_task(service.decide(query("first")))
        await asyncio.sleep(0.02)
        await asyncio.to_thread(service.slot.reload)
        await service.decide(query("second"))
        release.set()
        await first
        await service.drain()

    asyncio.run(live())
    service.log.close()
    rows = [line.split(",") for line in lines_of(tmp_path / "decisions")]
    assert {row[0]: (row[5], row[-1]) for row in rows} == {
        "first": ("node-3", "one"),
        "second": ("node-3", "two"),
    }


def test_the_first_question_after_a_reload_is_about_the_nodes_of_the_new_bundle():
    policies = iter([made_policy(), replace(made_policy(), nodes=(Node("new", cpu_cores=8.0),))])
    app = App(made_service(lambda: next(policies)))
    app.service.slot.reload()
    answer = asked(app, "/decide", {"request": {"request_id": "r"}})[1]
    assert answer["scores"] == {"new": 10}


def test_what_becomes_of_a_request_is_logged_after_its_decision_and_with_its_propensity(tmp_path):
    release = threading.Event()
    policy = made_policy(lambda decision: release.wait(60) and decision)
    config = ServiceConfig(deadline_s=5.0, seed=0, shadow=True)
    service = made_service(policy, config, tmp_path / "log", time.time)

    def events(*kinds: tuple[str, str | None]) -> None:
        service.report([RequestEvent(identity, time.time(), None, status) for identity, status in kinds])

    async def live() -> None:
        for identity in ("ended", "began", "later"):
            await service.decide(query(identity))
        events(("ended", None), ("ended", "completed"), ("began", None))
        release.set()
        await service.drain()
        events(("began", "completed"), ("later", None))

    asyncio.run(live())
    service.log.close()
    import_log("native", [tmp_path / "log" / "requests"], tmp_path / "archive")
    rows = {row["request_id"]: row for row in Archive(tmp_path / "archive").read("requests").to_pylist()}
    assert {name: row["status"] for name, row in rows.items()} == {
        "ended": "completed",
        "began": "completed",
        "later": "running",
    }
    assert all(row["propensity"] is not None and row["start"] is not None for row in rows.values())
    assert service._held_back == {}
