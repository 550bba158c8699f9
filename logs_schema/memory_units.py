"""Memory that is likely of another unit than GiB, by how much of it comes to a core."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

COLUMNS = ("cpu_cores", "memory_gib")
HUGE_GIB = 2**20
"""No request asks for a PiB of memory; of bytes that are taken for GiB most do, of KiB many: the check names them."""
MOST_GIB_OF_A_CORE = 256.0
"""Half of the nodes, or of the requests, with more than this for each core are none: in MiB, KiB or bytes they have."""


def memory_notices(nodes: pa.Table, requests: Iterable[pa.RecordBatch]) -> Iterator[str]:
    """That memory is likely not in GiB, in words.

    Args:
        nodes: The inventory, with `COLUMNS`.
        requests: Requests, with `COLUMNS`.
    """
    parts = {"nodes": [nodes], "requests": [pa.Table.from_batches([batch]) for batch in requests]}
    for table, tables in parts.items():
        gib = [_gib_of_a_core(part) for part in tables]
        usual = float(np.median(np.concatenate(gib))) if gib and any(map(len, gib)) else 0.0
        if usual > MOST_GIB_OF_A_CORE:
            yield (
                f"memory_gib of half of the {table} is {usual:,.5g} GiB or more for each core: is it in GiB? One has "
                "1,024 MiB, 1,048,576 KiB, 1,073,741,824 bytes (a mapping of requests names the unit; of the Standard "
                "Workload Format it is KiB per processor)"
            )


def _gib_of_a_core(part: pa.Table) -> np.ndarray:
    """[rows] float: memory for each core, of the rows that know both, have cores and less than `HUGE_GIB`."""
    cores, gib = (part[name].to_numpy(zero_copy_only=False).astype(float) for name in COLUMNS)
    known = (cores > 0.0) & (gib <= HUGE_GIB)
    found: np.ndarray = gib[known] / cores[known]
    return found
