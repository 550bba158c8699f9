"""Node specification strings of PBS at CERIT-SC, and what they allow: `1:ppn=12:x86_64:cl_zegox#excl`.

Parts joined by `+` request nodes of different kinds. Within a part, properties are joined by `:`. These restrict
the class of node:

* `cl_NAME` requests class NAME, `^cl_NAME` excludes it;
* `nodecpusN` requests nodes with N cores;
* `ppn=N` requests N cores on one node, so classes with fewer cores are out;
* `host=NAMEnn` and `NAMEnn.domain` request one machine, so its class; `^NAMEnn.domain` excludes one
  machine and therefore no class.

Other properties (`brno`, `nfs4`, `debian`, `mem=2gb`, ...) are had by both classes or carry no restriction.
"""

import re
from collections.abc import Mapping

from logs_schema.formats.fields import BadRow, number

MACHINE = re.compile(r"(?:host=)?([a-z]+)\d+(?:\..+)?")


def allowed_classes(spec: str, cores_per_node: Mapping[str, float]) -> frozenset[str]:
    """The classes of node that every part of a specification allows (any part, where no class suits all).

    Args:
        spec: The specification.
        cores_per_node: Cores of one node of each class.
    """
    parts = [_allowed_by_part(part.split("#")[0], cores_per_node) for part in spec.split("+")]
    return frozenset.intersection(*parts) or frozenset.union(*parts)


def _allowed_by_part(part: str, cores_per_node: Mapping[str, float]) -> frozenset[str]:
    allowed = set(cores_per_node)
    for word in part.split(":"):
        machine = MACHINE.fullmatch(word)
        if word.startswith("cl_"):
            allowed &= {word[3:]}
        elif word.startswith("^cl_"):
            allowed -= {word[4:]}
        elif re.fullmatch(r"nodecpus\d+", word):
            allowed &= {name for name, cores in cores_per_node.items() if cores == float(word[8:])}
        elif word.startswith("ppn="):
            requested = number(word[4:], "ppn")
            allowed &= {name for name, cores in cores_per_node.items() if cores >= requested}
        elif machine and machine[1] in cores_per_node:
            allowed &= {machine[1]}
    return frozenset(allowed)


def parse_nodes(text: str) -> tuple[str, ...]:
    """The node of every core, from `{1129,1129,1130}`; BadRow `bad_node_list` if it does not read so."""
    if not re.fullmatch(r"\{\w+(,\w+)*\}", text):
        raise BadRow("bad_node_list")
    return tuple(text[1:-1].split(","))
