"""Logged requests as windows: those of days that are judged on, and those that a twin learns from."""

import datetime as dt
from collections.abc import Iterable, Sequence

import numpy as np

from logs_schema import Archive
from logs_schema.calendar import DAY
from logs_schema.errors import ConfigError
from logs_schema.tables import NODES, REQUESTS
from twin.placement.encode import EncodedRows, cut_windows, read_pieces, with_tides
from twin.placement.encoding import Encoding, day_start_s
from twin.placement.windows import Windows, joined, select

MAX_REQUESTS = 65_536
"""Requests that a twin learns from at most. The default fit draws 1.5 million rows for each member: of more requests
most would be seen a few times or never, and memory would grow with them."""
MAX_VIEWS, LEAST_REQUESTS = 1 << 23, 8_192
"""Requests times nodes that it learns from at most, if that is more requests than the second: of each request the
state of every node is recorded."""
MAX_JUDGED_VIEWS = MAX_VIEWS // 2
"""The same of days that are judged on: what is decided there is simulated several times over."""
STRETCH_WINDOWS = 4
"""Windows one after another where days have more requests than are looked at."""


def encode_days(
    archive: Archive,
    encoding: Encoding,
    days: Sequence[dt.date],
    *,
    num_steps: int,
    stride: int | None = None,
    most: int | None = MAX_REQUESTS,
    each: int | None = None,
) -> Windows:
    """The requests of `days` and all that came of them, as windows; of very many, windows spread evenly over them.

    Args:
        archive: The log archive.
        encoding: What the arrays mean.
        days: Days to encode.
        num_steps: Requests per window.
        stride: Requests from one window's start to the next; no overlap by default.
        most: Requests looked at, about at most, and of many nodes or many requests in flight fewer (`looked_at`); None:
            all, in memory at once.
        each: Requests of a stretch where not all are looked at, about; by default those of `STRETCH_WINDOWS` windows.

    Raises:
        ConfigError: No request with a known decision.
    """
    found = read_pieces(
        archive,
        encoding,
        sorted(days),
        most=None if most is None else looked_at(encoding, most),
        each=STRETCH_WINDOWS * num_steps if each is None else each,
        known_until_s=np.inf,
    )
    windows, error = _cut(found, encoding, num_steps, (stride,))
    if error is not None:
        raise error
    return windows[0]


def looked_at(encoding: Encoding, most: int = MAX_REQUESTS) -> int:
    """Requests of the same days that `encode_days` looks at, at most: `most`, and of many nodes, or very many requests
    in flight on each, fewer (`Encoding.num_views`)."""
    return min(most, max(LEAST_REQUESTS, MAX_JUDGED_VIEWS // max(encoding.num_views, 1)))


def _cut(
    found: Iterable[tuple[EncodedRows, np.ndarray]],
    encoding: Encoding,
    num_steps: int,
    strides: Sequence[int | None],
) -> tuple[list[Windows], ConfigError | None]:
    """The windows of every stride; none, and why, where no piece has a request with a known decision."""
    cuts: list[list[Windows]] = [[] for _ in strides]
    missing = None
    for rows, wanted in found:
        try:
            parts = [cut_windows(rows, wanted, encoding, num_steps=num_steps, stride=one) for one in strides]
        except ConfigError as error:
            missing = error
            continue
        for cut, part in zip(cuts, parts, strict=True):
            cut.append(part)
    if not cuts[0]:
        return [], missing
    whole = []
    while cuts:  # the parts of each are let go as it is whole
        cut = cuts.pop(0)
        whole.append(cut[0] if len(cut) == 1 else joined(cut))
    return whole, None


def training_windows(
    archive: Archive,
    encoding: Encoding,
    days: Sequence[dt.date],
    *,
    num_steps: int,
    strides: Sequence[int | None] = (None,),
    most: int | None = None,
) -> list[Windows]:
    """What a twin learns from: the requests of some days as windows, or of very many days as many as are taken.

    Args:
        archive: The log archive.
        encoding: What the arrays mean.
        days: Days to learn from; what happened after the last of them is unknown.
        num_steps: Requests per window.
        strides: Requests from one window's start to the next, of every cut that is wanted.
        most: Requests taken, about at most; by default as many as the number of nodes allows.

    Returns:
        The windows of every cut, all of the same requests.

    Raises:
        ConfigError: No request with a known decision, of these days or in the whole log.
    """
    chosen = sorted(days)
    known_until_s = day_start_s(chosen[-1] + DAY)
    if most is None:
        most = min(MAX_REQUESTS, max(LEAST_REQUESTS, MAX_VIEWS // encoding.cluster.num_nodes))
    found = read_pieces(archive, encoding, chosen, known_until_s=known_until_s, most=most)
    tided = ((with_tides(rows, wanted, encoding), wanted) for rows, wanted in found)
    windows, error = _cut(tided, encoding, num_steps, strides)
    if error is not None:
        refuse_undecided(archive)
        raise error
    return windows


def refuse_undecided(archive: Archive) -> None:
    """ConfigError where no request of a log names the node that it was offered to or ran on."""
    columns, said = ("offered_node", "ran_node", "cpu_cores", "finish", "run_s"), set[str]()
    for batch in archive.scan(REQUESTS.name, columns=columns):
        said |= {name for name in batch.schema.names if batch[name].null_count < len(batch)}
        if said & {"offered_node", "ran_node"}:
            return
    why = archive.facts.get("limits", {}).get("decisions", "offered_node and ran_node are null in every row")
    is_queue = "cpu_cores" in said and said & {"finish", "run_s"}
    of_queue = "of this one" if is_queue else "of one with cpu_cores (or GPUs, mapped to them) and run times"
    size = "" if archive.num_rows(NODES.name) else " --processors SIZE"
    raise ConfigError(
        "the log never says on which node a request ran, so there are no placements to learn from",
        where=f"{archive.path}: {why}",
        allowed="requests with offered_node or ran_node",
        advice=f"give a log that says it; {of_queue} the order of a queue can be learned: --problem ordering{size}, "
        "in a job's configuration a table [order]",
    )


def fit_windows(
    archive: Archive, encoding: Encoding, days: Sequence[dt.date], num_steps: int
) -> tuple[Windows, Windows]:
    """The windows of some days that a twin is fitted on, and those it is left with, which overlap by half; raises as
    `training_windows`."""
    stride = max(1, num_steps // 2)
    logged, starts = training_windows(archive, encoding, days, num_steps=num_steps, strides=(None, stride))
    return logged, starts


def disjoint(windows: Windows) -> Windows:
    """Every second of `fit_windows`' overlapping windows."""
    return select(windows, np.arange(0, windows.num_windows, 2))
