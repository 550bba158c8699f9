"""The last inventory in a file, so that a server that is started again knows what the one before it was told."""

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from logs_schema.errors import SchedtwinError
from offline_rl.runner import Node
from offline_rl.serving.errors import ServingError
from offline_rl.serving.notices import Notices
from offline_rl.serving.plain import NODE_KEYS, inventory_of_json

FILE = "inventory.json"
"""Its name in the folder of a log."""


class KeptInventory:
    """An inventory on the disk.

    Args:
        path: Of the file; None keeps nothing.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._errors = path, Notices()

    def read(self) -> list[Node]:
        """The nodes that are kept, and says on standard error how old they are; none where there is no file.

        Raises:
            ServingError: The file holds something else, or cannot be read.
        """
        if self._path is None or not self._path.exists():
            return []
        try:
            # It may be larger than what was posted, so no limit of a body holds here
            nodes = inventory_of_json(orjson.loads(self._path.read_bytes()))
            written_s = self._path.stat().st_mtime
        except (SchedtwinError, OSError, orjson.JSONDecodeError) as error:
            raise ServingError(
                "the kept inventory cannot be read",
                where=f"{self._path}: {error}",
                allowed="what POST /nodes takes",
                advice="remove the file, and post the inventory again",
            ) from error
        if nodes:
            when = datetime.fromtimestamp(written_s, UTC).isoformat(timespec="seconds")
            sentence = (
                f"{len(nodes)} nodes by the inventory of {when} ({self._path}); POST /nodes replaces it"
            )
            print(f"schedtwin serve: {sentence}", file=sys.stderr, flush=True)
        return nodes

    def write(self, nodes: Sequence[Node]) -> bool:
        """Keeps an inventory in place of the last one; False, and says so, where that fails."""
        if self._path is None:
            return True
        beside = self._path.with_name(f"{self._path.name}.new")
        try:
            with beside.open("wb") as file:
                file.write(orjson.dumps({"nodes": list(map(_plain, nodes))}))
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._path)
        except OSError as error:
            self._errors.write("inventory", f"the inventory is in use, but could not be kept: {error}")
            return False
        return True


def _plain(node: Node) -> dict[str, Any]:
    known = asdict(node)
    return {key: known[key] for key in NODE_KEYS if known[key] is not None}
