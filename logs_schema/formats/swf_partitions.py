"""Partitions of a Standard Workload Format log: several machines in one file, identified by field 16.

The field is taken for the machine a job was sent to where nothing contradicts it: there are from 2 to
`MOST_PARTITIONS` numbers, nearly all jobs that ran have one, and together they do not use more than the whole machine
of the header has (partitions that share processors would). Otherwise the log is one pool, and a note says why.

A partition has the processors that were given at import, else those of the header, in either of two ways:

    ; MaxProcs: 1152 (1: 1024, 2: 128)
    ; Partition: 2 hybrid nodes, 128 processors

else the most that were in use at once, a guess. So it is where the header has less than nine tenths of that: then it
counts something else, such as nodes.
"""

import re
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from logs_schema.formats.fields import number as finite
from logs_schema.formats.files import numbered_lines
from logs_schema.formats.pool_size import PoolUse, first_of_each, pool_use
from logs_schema.formats.reading import LATEST_EPOCH_S, BadRow

MOST_PARTITIONS = 32
KNOWN = 0.99
"""Share of the jobs that ran whose partition must be known."""
OVER = 1.05
"""How far the partitions' peaks may exceed the whole machine: ends are logged late, sizes change."""
COUNTS_OTHERS = 0.9
PROCESSORS = re.compile(
    r"(?:MaxProcs\W*([\d,]++)(?!_)|(?<![\d_])([\d,]+)\s*(?:proc|core|cpu))", re.IGNORECASE
)
SIZES = re.compile(r"(\d+)\s*[:=]\s*([\d,]++)(?!_)")
DESCRIBED = re.compile(r"\s*;\s*Partitions?:\s*(\d+)\b[^\w(]*(.*\S)?")
FIELDS = (1, 2, 3, 4, 7, 15)
"""Submit, wait, run, processors, processors requested, partition."""


class Partitions(NamedTuple):
    """The machines of a log; without any the log is one pool.

    Attributes:
        processors: Name of the pool -> its size, in order of the partitions' numbers.
        guessed: Names of those whose size is the peak of use.
        described: Name -> its description in the header.
        used: Name -> its use over time.
        left_out: Why the partitions of field 16 are not taken for machines; empty where there are none to leave out.
    """

    processors: dict[str, float]
    guessed: tuple[str, ...]
    described: dict[str, str]
    used: dict[str, PoolUse]
    left_out: str = ""


def pool_name(partition: str) -> str:
    """What the pool of a partition is called."""
    return f"partition-{partition}"


def partitions_of(
    path: Path, header: Mapping[str, str], whole: float | None, given: Mapping[str, float]
) -> Partitions:
    """The partitions of a log.

    Args:
        path: The log.
        header: Its header, by name.
        whole: Processors of the whole machine, if the header has them.
        given: Processors by name of the pool, as given at the import.
    """
    used, left_out = _uses(path)
    together = sum(use.peak for use in used.values())
    if whole is not None and together > OVER * whole:
        left_out = f"their peaks of use add up to {together:,g} processors, and the header has {whole:,g}"
        used = {}
    if not used:
        return Partitions({}, (), {}, {}, left_out)
    described = _described(path)
    sizes = _sizes(header) | {
        number: size for number, words in described.items() if (size := _processors(words)) is not None
    }
    processors, guessed = {}, []
    for number in sorted(used, key=int):
        name = pool_name(number)
        if name in given:
            processors[name] = given[name]
        elif sizes.get(number, 0.0) >= COUNTS_OTHERS * used[number].peak:
            processors[name] = sizes[number]
        else:
            processors[name] = used[number].peak
            guessed.append(name)
    words = {pool_name(number): words for number, words in described.items() if number in used}
    uses = {pool_name(number): use for number, use in used.items()}
    return Partitions(processors, tuple(guessed), words, uses)


def partition_guesses(partitions: Partitions) -> dict[str, dict[str, float]]:
    """The fact about partitions whose size is a guess."""
    return {name: partitions.used[name].guess() for name in partitions.guessed}


def partition_notes(partitions: Partitions) -> list[str]:
    """How partitions were read, and which sizes are guesses."""
    if partitions.left_out:
        return [f"The partitions of field 16 are left out, and the log is one pool: {partitions.left_out}."]
    if not partitions.processors:
        return []
    sizes = ", ".join(
        f"{name} {size:,g}" + (f" ({words})" if (words := partitions.described.get(name)) else "")
        for name, size in partitions.processors.items()
    )
    notes = [f"Field 16 is the partition: every one is a pool of its own, with processors: {sizes}."]
    if partitions.guessed:
        notes.append(
            f"The header does not say how large {', '.join(partitions.guessed)} is: a guess, the most in use at once."
        )
    return notes


def _uses(path: Path) -> tuple[dict[str, PoolUse], str]:
    """Processors in use over time, by number of the partition; or none, and why field 16 names no machines."""
    named: set[float] = set()
    codes: dict[str, int] = {}
    columns, jobs = {name: array("d") for name in ("begin", "end", "processors", "code")}, array("q")
    num_unknown = 0
    for _, line in numbered_lines(path):
        fields = line.split()
        if len(fields) != 18 or fields[0].startswith(";"):
            continue
        try:
            submit, wait, run, allocated, requested, partition = (
                finite(fields[index], "") for index in FIELDS
            )
        except BadRow:
            continue
        is_named = partition >= 0 and partition == int(partition)
        if is_named:
            named.add(partition)
        processors = requested if requested > 0 else allocated
        if not (wait >= 0 and run > 0 and processors > 0 and abs(submit) + wait + run < LATEST_EPOCH_S):
            continue
        if not is_named:
            num_unknown += 1
            continue
        code = codes.setdefault(str(int(partition)), len(codes))
        for name, value in zip(columns, (submit + wait, submit + wait + run, processors, code), strict=True):
            columns[name].append(value)
        jobs.append(hash(fields[0]))
    num_known = len(columns["code"])
    if len(codes) > MOST_PARTITIONS:
        return {}, f"{len(codes):,} are more than the {MOST_PARTITIONS} machines that a file is taken to hold"
    if len(named) > 1 and num_known < max(1, KNOWN * (num_known + num_unknown)):
        all_ran = f"{num_known + num_unknown:,} jobs that are known to have run"
        return {}, f"of {len(named):,} partitions, they name that of {num_known:,} of the {all_ran}"
    if len(codes) < 2:
        return {}, ""
    counts = first_of_each(jobs)
    begin, end, processors_used, code_of = (np.array(column)[counts] for column in columns.values())
    uses = {
        number: pool_use(*(column[code_of == code] for column in (begin, end, processors_used)))
        for number, code in codes.items()
    }
    return uses, ""


def _described(path: Path) -> dict[str, str]:
    """Number of a partition -> its description, from its line in the header."""
    found: dict[str, str] = {}
    for _, line in numbered_lines(path):
        if line.strip() and not line.lstrip().startswith(";"):
            break
        if match := DESCRIBED.match(line):
            words = match[2] or ""
            found.setdefault(match[1], words[1:-1] if re.fullmatch(r"\([^()]*\)", words) else words)
    return found


def _sizes(header: Mapping[str, str]) -> dict[str, float]:
    """The sizes of partitions that the header gives in brackets."""
    brackets: Sequence[str] = re.findall(r"\(([^)]*)\)", header.get("MaxProcs", header.get("MaxNodes", "")))
    found = [pair for text in brackets for pair in SIZES.findall(text)]
    return {number: float(size.replace(",", "")) for number, size in found if size.strip(",")}


def _processors(words: str) -> float | None:
    match = PROCESSORS.search(words)
    text = "" if match is None else (match[1] or match[2]).replace(",", "")
    return float(text) if text else None
