"""Node objects told apart without parsing: the same as parsing all, whatever changed and however it is written."""

import json
import random

import orjson
import pytest

from offline_rl.serving import node_lists
from offline_rl.serving.extender import args_of, filter_result
from offline_rl.serving.kubernetes import NodeObjects
from offline_rl.serving.node_lists import NodeLists
from tests.serving.making import node_object, pod

TRICKS = (
    'a"}]},{"metadata":{"name":"z"',
    "]}",
    '"Nodes":{"items":[',
    "\\",
    "é\u2028",
    '}},{"metadata":{"name":"n1"}}',
)


def node(number: int, version: int, trick: str = "") -> dict:
    item = node_object(f"n{number}", cpu=str(1 + version % 7))
    item["metadata"] |= {"uid": f"u{number}", "resourceVersion": str(version), "annotations": {"a": trick}}
    item["status"] |= {"conditions": [{"type": "Ready"}], "images": [{"names": ["x"], "sizeBytes": 1}]}
    return item


def asked_twice(lists: NodeLists, body: bytes) -> tuple:
    """What is read from a question told apart, and from the same question parsed as a whole."""
    parsed = lists.parse(body)
    apart = args_of(parsed.content, 1.0, NodeObjects(), parsed.seen)
    whole = args_of(orjson.loads(body), 1.0, NodeObjects())
    results = [orjson.loads(orjson.dumps(filter_result(args, {"n0": "full"}, {}))) for args in (apart, whole)]
    return (apart.query, results[0]), (whole.query, results[1])


@pytest.mark.parametrize(
    "write", [orjson.dumps, lambda content: json.dumps(content).encode()], ids=["Go", "spaces"]
)
def test_questions_one_after_the_other_are_read_as_if_parsed_as_a_whole(write):
    lists, rng = NodeLists(NodeObjects()), random.Random(0)
    versions = [0] * 8
    for turn in range(60):
        for number in rng.sample(range(8), rng.randrange(3)):
            versions[number] += 1
        chosen = rng.sample(range(8), rng.randrange(1, 8))
        items = [
            node(number, versions[number], TRICKS[(number + versions[number]) % len(TRICKS)])
            for number in chosen
        ]
        keys = ("Pod", "Nodes", "NodeNames") if turn % 3 else ("pod", "nodes", "nodenames")
        parts = [(keys[0], pod(annotations={"a": TRICKS[turn % len(TRICKS)]})), (keys[2], None)]
        parts.insert(rng.randrange(3), (keys[1], {"metadata": {}, "items": items}))
        apart, whole = asked_twice(lists, write(dict(parts)))
        assert apart == whole
        assert list(apart[0].machines.values()) == list(whole[0].machines.values())


def test_only_what_changed_is_parsed(monkeypatch):
    lists, parsed, read = NodeLists(NodeObjects()), [], NodeObjects.machine
    items = [node(number, 0) for number in range(20)]
    body = {"Pod": pod(), "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
    lists.parse(orjson.dumps(body))
    monkeypatch.setattr(
        NodeObjects, "machine", lambda self, item, where: parsed.append(where) or read(self, item, where)
    )
    items[3] = node(3, 1)
    random.Random(0).shuffle(items)
    assert len(lists.parse(orjson.dumps(body)).seen) == 20
    assert len(parsed) == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"Pod":{"metadata":{"uid":"u"},"x":{"Nodes":{"items":[{"metadata":{"name":"a"}}]}}},"NodeNames":["b"]}',
        b'{"Pod":{"metadata":{"uid":"u"}},"Nodes":{"items":[{"metadata":{"name":"a"}}]},"nodes":{"items":[]}}',
        b'{"Pod":{"metadata":{"uid":"u"}},"Nodes":{"items":[{"metadata":{"name":"a"}},{"spec":{}}]}}',
        b'{"Pod":{"metadata":{"uid":"u"}},"Nodes":{"items":[{"metadata":{"name":"a"}},]}}',
        b'{"Pod":{"metadata":{"uid":"u"}},"Nodes":{"items":[{"metadata":{"name":"a"}}',
        b'{"Pod":{"metadata":{"uid":"u"}},"Nodes":{"items":[{"metadata":{"name":"a","name":"b"}}]}}',
        b'{"Pod":{"metadata":{"uid":"u"}},"Nodes":{"items":[{"metadata":{"name":"a"},"status":{"allocatable":{"cpu":"x"}}}]}}',
        b'[{"Nodes":{"items":[{"metadata":{"name":"a"}}]}}]',
    ],
)
def test_what_is_written_in_another_way_has_the_same_outcome(body):
    def outcome(parse) -> object:
        try:
            return parse()
        except Exception as error:  # whatever it is, it is to be the same
            return str(error)

    lists = NodeLists(NodeObjects())
    for _ in range(2):  # the second time with the objects kept
        parsed = outcome(lambda: lists.parse(body))
        if isinstance(parsed, str):
            assert "no JSON" in parsed
            with pytest.raises(orjson.JSONDecodeError):
                orjson.loads(body)
            continue
        apart = outcome(lambda: args_of(parsed.content, 1.0, NodeObjects(), parsed.seen).query)  # noqa: B023
        assert apart == outcome(lambda: args_of(orjson.loads(body), 1.0, NodeObjects()).query)


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(node_lists, "MAX_KEPT_BYTES", 5000)
    lists = NodeLists(NodeObjects())
    for number in range(100):
        items = [node(number, 0), node(number, 1)]
        lists.parse(orjson.dumps({"Pod": pod(), "Nodes": {"items": items}}))
    assert lists._kept_bytes == sum(len(one.raw) for one in lists._kept.values()) <= 5000
