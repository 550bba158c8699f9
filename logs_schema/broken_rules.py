"""What the rules of the quarantine require, and where each was broken first, so that a log can be mended."""

from collections.abc import Iterator, Mapping

from logs_schema.archive import Archive
from logs_schema.checks import LARGEST
from logs_schema.documentation import allowed_text
from logs_schema.formats.files import MAX_LINE_LETTERS
from logs_schema.tables import TABLES

IN_ORDER = (
    'arrival, start, finish in order (a mapping of requests says that 0 stands for none: values = { 0 = "" })'
)
STANDS_FOR_NONE = 'a mapping of requests says what stands for none: values = { 4294967295 = "" }'
REQUIRED = {
    "null": 'a value (a mapping of requests leaves rows without one out by [only], COLUMN = ".+")',
    "not_a_number": 'a number (a mapping of requests says what texts stand for: values = { ">24" = "32" }, and how '
    'numbers are written: decimal = ",", thousands = ".", with units of their own unit = "quantity")',
    "not_a_boolean": "true, false, 1 or 0",
    "deployment_samples.not_a_number": 'a number; of texts with their own units, 120 ms or 300m, unit = "quantity" in '
    'the mapping, with a decimal comma decimal = ","',
    "not_an_instant": "ISO 8601 with its zone, or seconds since 1970 (a mapping: as time_format says)",
    "skipped_by_clock": "an instant that there was: clocks of the mapping's time_zone skip this hour (is the log of "
    "another zone?)",
    "out_of_range": "seconds (not milliseconds) since 1970, or a date of the years 1 to 9999",
    "out_of_range:requested_run_s": f"a duration that a calendar holds; {STANDS_FOR_NONE}",
    "not_finite": "a finite number, or nothing where there is none",
    "too_large": f"a number of at most {LARGEST:.0e} in size; {STANDS_FOR_NONE}",
    "not_utf8": "text in UTF-8",
    "line_break": "names without line breaks",
    "empty_name": "a list without empty names or nulls in it",
    "field_count": "as many fields as the other rows have",
    "start_before_arrival": IN_ORDER,
    "finish_before_arrival": IN_ORDER,
    "finish_before_start": IN_ORDER,
    "not_a_duration": "[DAYS-][[HOURS:]MINUTES:]SECONDS",
    "not_a_quantity": "a number, with a suffix such as m, Ki, M or G",
    "not_a_hostlist": "names, such as node[01-04,07],login1",
    "not_an_exec_host": "places of nodes, such as node1/0*8+node2/0",
    "not_json": "a JSON object a line",
    "no_entry": "a list with objects in it, at the path that the mapping names as `each`",
    "no_match": "an amount, or a text that the mapping's pattern matches as a whole; `other` in the mapping says what "
    "all other texts stand for",
    "no_match:line": "what the mapping's regular expression of whole lines (line) matches",
    "other_row": "what the mapping's table [only] demands",
    "not_csv": "quotes that end on their line: a row is one line",
    "line_too_long": f"at most {MAX_LINE_LETTERS:,} letters a line",
    "off_the_grid_of_intervals": "instants at most a quarter of an interval off one grid; what is measured more often "
    "is asked for with the interval as its step, or `resample = true` in the mapping; for CSV of runs that began "
    "apart, `consecutive = true` in the mapping",
    "counter_of_several_fell": "a counter of one process, or the sum of rates in place of the rate of a sum: "
    "`sum by (deployment) (rate(...[1m]))`, without `counter`",
    "duplicate_key": "each key once; the first row is kept",
}
"""What is required by rules that do not depend on the column."""
SHOWN_LETTERS = 300


def rule_in_words(table: str, rule: str) -> str:
    """What a rule such as `not_allowed:status` requires, in words; empty where its name says it."""
    kind, _, name = rule.partition(":")
    for known in (f"{table}.{rule}", rule, kind):
        if known in REQUIRED:
            return REQUIRED[known]
    declared = {column.name: column for spec in TABLES if spec.name == table for column in spec.columns}
    return allowed_text(declared[name]).removeprefix("required; ") if name in declared else ""


def first_broken(archive: Archive, broken: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """One line a rule: where it was broken first, what stood there, what is required.

    Args:
        archive: Whose quarantine is read, up to the last rule's first row.
        broken: Table to rule to number of rows.
    """
    left = {(table, rule) for table, rules in broken.items() for rule in rules}
    for batch in archive.quarantine() if left else ():
        for row in batch.to_pylist():
            key = row["table"], row["rule"]
            if key not in left:
                continue
            left.remove(key)
            text, required = _printable(" ".join(row["raw"].split())), rule_in_words(*key)
            shown = text if len(text) <= SHOWN_LETTERS else f"{text[:SHOWN_LETTERS]} ..."
            yield f"{row['rule']}, first in {row['source']}, row {row['row']}: {shown}" + (
                f"; required: {required}" if required else ""
            )
        if not left:
            return


def _printable(text: str) -> str:
    """Text of a log for a terminal: control letters, such as the zeros that a crash leaves in a file, are escaped."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
