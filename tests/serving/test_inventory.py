"""The inventory: what it does not name is not there, and a server that is started again still has it."""

import asyncio
import os
import threading
from dataclasses import replace

import orjson
import pytest

from offline_rl.runner import Node, Request
from offline_rl.serving.app import App
from offline_rl.serving.bodies import json_of
from offline_rl.serving.config import ServerConfig
from offline_rl.serving.errors import QueryError, ServingError
from offline_rl.serving.inventory import Inventory
from offline_rl.serving.kept_inventory import KeptInventory
from offline_rl.serving.plain import inventory_of_json
from offline_rl.serving.quantities import MOST, amount_of
from offline_rl.serving.queries import PlacementQuery
from offline_rl.serving.server import kept_at
from offline_rl.serving.service import Service
from tests.serving.making import NAMES, asked, call, made_service, node_object

USUAL = {"request": {"request_id": "r", "cpu_cores": 2}}


def test_nodes_of_training_that_an_inventory_does_not_name_are_not_there(capsys):
    app = App(made_service())
    assert asked(app, "/nodes", {"nodes": ["node-1"]}) == (200, {"num_nodes": 4, "absent": 3})
    answer = asked(app, "/decide", USUAL)[1]
    others = dict.fromkeys(("node-0", "node-2", "node-3"), "not in the inventory")
    assert (answer["node"], answer["infeasible"]) == ("node-1", others)
    assert "3 nodes of training are not in the inventory: node-0" in capsys.readouterr().err
    # a question that states a node says that it is there; one that only names it does not
    told = USUAL | {"nodes": [{"name": "node-3", "cpu_cores": 16}]}
    assert asked(app, "/decide", told)[1]["node"] == "node-3"
    assert asked(app, "/decide", USUAL | {"nodes": ["node-3"]})[1]["node"] is None
    app.service.slot.reload()
    assert asked(app, "/decide", USUAL)[1]["node"] == "node-1"
    assert asked(app, "/nodes", {"nodes": []})[1]["absent"] == 0
    assert asked(app, "/decide", USUAL)[1]["node"] == "node-3"


def test_a_class_of_machines_is_there_while_one_of_them_is():
    inventory = Inventory()
    inventory.train([Node("big"), Node("small")], {"m1": "big", "m2": "big", "m3": "small"})
    inventory.state([Node("m1")])
    assert inventory.absent == {"m2", "small", "m3"}
    assert {name: node.available for name, node in inventory.facts.items()} == {
        "big": True,
        "small": False,
        "m1": True,
    }
    inventory.state([Node("m1", available=False), Node("small")])
    assert inventory.absent == {"m2", "big"}


def test_a_server_that_is_started_again_has_the_inventory(tmp_path, capsys):
    path = tmp_path / "inventory.json"

    def started():
        old = made_service()
        return App(Service(old.slot, old.config, old.log, old.metrics, old.clock, KeptInventory(path)))

    first = started()
    listed = [node_object("node-1", cpu="8"), node_object("new", cpu="64", unschedulable=True)]
    assert asked(first, "/nodes", {"items": listed}) == (200, {"num_nodes": 5, "absent": 3})
    again = started()
    assert again.service.cluster.inventory.facts == first.service.cluster.inventory.facts
    assert asked(again, "/decide", USUAL)[1]["node"] == "node-1"
    assert "2 nodes by the inventory of" in capsys.readouterr().err
    path.write_text("{")
    with pytest.raises(ServingError, match="kept inventory cannot be read"):
        started()
    path.unlink()
    path.mkdir()
    gone = App(
        Service(*(getattr(first.service, name) for name in ("slot", "config", "log", "metrics", "clock")))
    )
    gone.service._kept = KeptInventory(path)
    assert asked(gone, "/nodes", {"nodes": list(NAMES)})[1] == {"num_nodes": 4, "absent": 0, "kept": False}
    assert "could not be kept" in capsys.readouterr().err


def test_it_is_kept_beside_the_log_or_where_it_is_asked_for(tmp_path):
    config = ServerConfig(tmp_path)
    assert kept_at(config) is None
    assert kept_at(replace(config, log=tmp_path / "log")) == tmp_path / "log" / "inventory.json"
    assert kept_at(replace(config, inventory=tmp_path / "kept.json")) == tmp_path / "kept.json"
    with pytest.raises(ServingError, match="no inventory can be kept there"):
        kept_at(replace(config, inventory=tmp_path / "no" / "kept.json"))


def test_a_node_of_one_machine_is_as_large_as_the_inventory_says_and_a_class_keeps_its_machines():
    inventory = Inventory()
    inventory.train(
        [
            Node("one", cpu_cores=8.0, machine_cpu_cores=8.0),
            Node("class", cpu_cores=80.0, machine_cpu_cores=8.0),
        ]
    )
    inventory.state([Node("one", cpu_cores=16.0), Node("class", cpu_cores=160.0)])
    large = PlacementQuery("r", 0.0, Request(cpu_cores=12.0), ("one", "class"))
    assert inventory.verdicts(large, {}) == ({}, {"class": "asks for 12 cpu_cores, the node has 8"})
    told = replace(large, machines={"one": Node("one", cpu_cores=10.0)})
    assert "one" in inventory.verdicts(told, inventory.own(told))[1]


@pytest.mark.parametrize(
    "content",
    [
        {"items": [node_object("huge", cpu="1e16")]},
        {"nodes": [f"{number:05d}{'x' * 405}" for number in range(20_000)]},  # kept it takes more than 8 MiB
    ],
)
def test_every_inventory_that_is_taken_can_be_read_again(tmp_path, content):
    kept = KeptInventory(tmp_path / "inventory.json")
    nodes = inventory_of_json(json_of(orjson.dumps(content)))
    assert kept.write(nodes)
    assert kept.read() == nodes


def test_no_amount_is_larger_than_kubernetes_knows():
    assert amount_of("8Ei") == MOST
    for quantity in ("9Ei", "1e308", "1e999"):
        with pytest.raises(QueryError, match="no quantity"):
            amount_of(quantity)


def test_a_slow_disk_holds_up_who_posts_an_inventory_and_nobody_else(tmp_path, monkeypatch):
    release = threading.Event()

    def fsync(_descriptor: int) -> None:
        if not release.wait(2.0):
            raise OSError("too long")

    monkeypatch.setattr(os, "fsync", fsync)
    old = made_service()
    kept = KeptInventory(tmp_path / "inventory.json")
    app = App(Service(old.slot, old.config, old.log, old.metrics, old.clock, kept))

    async def live() -> list[tuple]:
        posts = [asyncio.create_task(call(app, "/nodes", {"nodes": [name]})) for name in ("node-1", "node-2")]
        await asyncio.sleep(0)
        answered = await call(app, "/decide", USUAL)
        release.set()
        return [answered, *(await asyncio.gather(*posts))]

    answered, *posted = asyncio.run(live())
    assert answered[1]["node"] == "node-2"
    assert [answer.get("kept", True) for _, answer in posted] == [True, True]
    assert [node.name for node in kept.read()] == ["node-2"]
