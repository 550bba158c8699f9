"""Lists of whole node objects, split without being parsed: what did not change since it was seen is only compared.

In a question of kube-scheduler nearly all bytes are node objects, and nearly all of those are the same in the next
question. So the bytes of every node's last object are kept, and a list is walked through by comparing: a JSON object
that begins with all the bytes of another one is that object. Only an object with other bytes (another version of the
node, that is) is parsed; and the rest of the question, with a mark in place of the list.

A question that is not written as Go writes it is parsed as a whole. The outcome is the same.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from offline_rl.runner import Node
from offline_rl.serving.bodies import json_of
from offline_rl.serving.errors import QueryError
from offline_rl.serving.kubernetes import NodeObjects

MAX_KEPT_BYTES = 64 * 2**20
"""Bytes of node objects that are kept; beyond that the oldest go."""
MAX_TRIES = 8
"""Places tried as the end of an object that is not known."""

_HEAD = rb'\{(?:"kind": ?"Node", ?)?(?:"apiVersion": ?"v1", ?)?"metadata": ?\{"name": ?"'
_LIST = re.compile(rb'"[Nn]odes": ?\{(?:"metadata": ?\{[^{}]{0,200}\}, ?)?"items": ?\[')
_OBJECT = re.compile(_HEAD + rb'([^"\\\x00-\x1f]{1,512})"')
_END = re.compile(rb"\}(?=, ?" + _HEAD + rb"|\]\})")
_COMMA = re.compile(rb", ?")


@dataclass(frozen=True, slots=True)
class SeenNode:
    """A node object: its bytes, and the facts that were read from it."""

    raw: bytes
    facts: Node


@dataclass(frozen=True, slots=True)
class Parsed:
    """A question.

    Attributes:
        content: The JSON value; the list of nodes is empty where it was split off.
        seen: The list of nodes then.
    """

    content: Any
    seen: Sequence[SeenNode] | None = None


class NodeLists:
    """Parses questions, and keeps the nodes' objects. Belongs to one event loop.

    Args:
        objects: Reads node objects.
    """

    def __init__(self, objects: NodeObjects) -> None:
        self._objects = objects
        self._kept: dict[bytes, SeenNode] = {}
        self._kept_bytes = 0
        self._mark = secrets.token_hex(16)  # no caller can write it

    def parse(self, body: bytes) -> Parsed:
        """The content of a question; errors as for `json_of`."""
        begin = _LIST.search(body)
        walked = None if begin is None else self._walk(body, begin.end())
        if begin is not None and walked is not None:
            seen, end = walked
            content = json_of(b'%s"%s"%s' % (body[: begin.end()], self._mark.encode(), body[end:]))
            if self._takes_mark_out(content):
                return Parsed(content, seen)
        return Parsed(json_of(body))

    def _walk(self, body: bytes, at: int) -> tuple[list[SeenNode], int] | None:
        """The objects of a list that begins at a place, and where it ends; None where it is written in another way."""
        seen: list[SeenNode] = []
        while (head := _OBJECT.match(body, at)) is not None:
            node = self._kept.get(head[1])
            if node is None or not body.startswith(node.raw, at):
                node = self._read(body, at, head[1], len(seen))
                if node is None:
                    return None
            seen.append(node)
            at += len(node.raw)
            if body[at : at + 1] == b"]":
                return seen, at
            comma = _COMMA.match(body, at)
            if comma is None:
                return None
            at = comma.end()
        return None

    def _read(self, body: bytes, at: int, name: bytes, index: int) -> SeenNode | None:
        """Parses the object at a place, and keeps it; None where its end is not found."""
        for _, end in zip(range(MAX_TRIES), _END.finditer(body, at), strict=False):
            raw = body[at : end.end()]
            try:
                item = orjson.loads(raw)
            except orjson.JSONDecodeError:
                continue
            try:
                node = SeenNode(raw, self._objects.machine(item, f"Nodes.items[{index}]"))
            except QueryError:  # raised again where the whole list is read
                return None
            if node.facts.name.encode() == name:
                self._keep(name, node)
            return node
        return None

    def _keep(self, name: bytes, node: SeenNode) -> None:
        older = self._kept.pop(name, None)
        self._kept_bytes += len(node.raw) - (0 if older is None else len(older.raw))
        self._kept[name] = node
        while self._kept_bytes > MAX_KEPT_BYTES:
            self._kept_bytes -= len(self._kept.pop(next(iter(self._kept))).raw)

    def _takes_mark_out(self, content: Any) -> bool:
        """Empties the list that the mark stands in, if that is the question's own list of nodes."""
        lists = (
            [value for key, value in content.items() if key.lower() == "nodes"]
            if isinstance(content, dict)
            else []
        )
        if len(lists) != 1 or not isinstance(lists[0], dict) or lists[0].get("items") != [self._mark]:
            return False
        lists[0]["items"] = []
        return True
