"""`schedtwin import`: converts a raw log to an archive."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from evaluation.commands.common_arguments import add_out
from evaluation.commands.engine_arguments import add_engine_arguments, engine_from

if TYPE_CHECKING:
    from logs_schema.importing import ImportReport

NAME = "import"
HELP = "import a scheduling log into an archive"
MANY = 0.05
"""Share of a table's rows from which on the first one that breaks a rule is shown."""
MEANT = "other_row:", "duplicate_key"
"""Rules of rows that are left out by choice, or are kept elsewhere."""
MAPPINGS = Path(__file__).parents[1] / "examples"
"""Folders of shipped mappings."""

LATER_DAYS = (
    "Days that came later: name their files beside the older ones, and --replace; a row that is in both is\n"
    "taken once. The daily job that also trains again is schedtwin refresh."
)
TO_ADD = "to add days, name their files beside the older ones and --replace, or run the daily job, schedtwin refresh"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments; the formats are those that `logs_schema.formats` exports."""
    from logs_schema.formats.finding import find_format, format_names

    parser.formatter_class = RawDescriptionHelpFormatter
    width = max(len(name) for name in format_names())
    lines = (f"  {name:<{width}}  {find_format(name).DESCRIPTION}" for name in format_names())
    parser.epilog = "\n".join(("formats:", *lines, "", LATER_DAYS))
    parser.add_argument("format", metavar="FORMAT", help="format of the log (see below)")
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        type=_or_shipped,
        help="files of the log, or a folder of them; of a mapping also the name of a shipped one, slurm.toml say",
    )
    parser.set_defaults(publishes=True, if_taken=TO_ADD)
    parser.set_defaults(other_names=f"a file or folder, or a shipped mapping: {', '.join(_shipped())}")
    add_out(
        parser,
        "archive",
        "folder to write, or address in an object store (s3://BUCKET/NAME, gs://..., file:///...)",
    )
    parser.add_argument(
        "--origin",
        metavar="DATE",
        type=_instant,
        help="date of the log's time zero, for logs without dates (UTC)",
    )
    parser.add_argument(
        "--capacity",
        metavar="[POOL=]CORES",
        action="append",
        default=[],
        type=_capacity,
        help="cores of the machine, or of one of its pools, for logs without them; may be repeated",
    )
    add_engine_arguments(parser)


def run(arguments: Namespace) -> int:
    """Import the log and print the numbers of kept and quarantined rows; 0, or 1 where no row of a table was right."""
    from contextlib import nullcontext
    from dataclasses import replace

    from evaluation.commands.output import follow_up, progress_of, show_result
    from evaluation.jobs.engine.config import tasks_on
    from logs_schema.archive import Archive
    from logs_schema.broken_rules import first_broken
    from logs_schema.importing import ImportReport, import_log
    from logs_schema.stores import address_of, working_copy

    def text(report: ImportReport) -> str:
        lines = [f"{'table':<20} {'rows':>12} {'quarantined':>12} {'superseded':>12}"]
        for table, counts in report.to_json()["tables"].items():
            lines.append(
                f"{table:<20} {counts['rows']:>12,} {counts['quarantined']:>12,} {counts['superseded']:>12,}"
            )
            rules = {**report.quarantined.get(table, {}), **report.superseded.get(table, {})}
            lines += [f"  {num_rows:,} x {rule}" for rule, num_rows in sorted(rules.items())]
        lines.append(str(report.lines))
        lines += why_not_kept
        lines += [f"warning: {notice}" for notice in report.notices]
        lines.append(
            f"{report.archive} written in {report.seconds:.1f} s; {follow_up('check', report.archive)}"
        )
        return "\n".join(lines)

    address = address_of(arguments.out)
    engine = engine_from(arguments)
    with (
        nullcontext(arguments.out)
        if address is None
        else working_copy(address, replace=arguments.replace) as out,
        progress_of(arguments) as progress,
        progress.stage("import", unit="rows") as stage,
        tasks_on(engine, progress, [*arguments.paths, out]) as tasks,
    ):
        report = import_log(
            arguments.format,
            arguments.paths,
            out,
            origin=arguments.origin,
            capacity=dict(arguments.capacity),
            replace=arguments.replace,
            progress=stage,
            run_tasks=tasks,
            only_parts=engine.is_here,
        )
        why_not_kept = [f"no row of {table} was kept" for table in nothing_kept(report)]
        why_not_kept += ["the log holds no rows"] if holds_nothing(report) else []
        why_not_kept += [f"  {line}" for line in first_broken(Archive(out), often_broken(report))]
    report = replace(report, archive=arguments.out if address is None else address)
    show_result(arguments, report.to_json(), text(report))
    return 1 if nothing_kept(report) or holds_nothing(report) else 0


def nothing_kept(report: "ImportReport") -> list[str]:
    """The tables of which every row is in quarantine."""
    return [table for table in report.quarantined if not report.rows.get(table)]


def often_broken(report: "ImportReport") -> dict[str, dict[str, int]]:
    """The rules that cost a table many rows, which neither the mapping left out nor were there before."""
    found = {}
    for table, rules in report.quarantined.items():
        kept = report.rows.get(table, 0)
        wrong = {rule: number for rule, number in rules.items() if not rule.startswith(MEANT)}
        enough = MANY * (kept + sum(wrong.values()))
        often = {rule: number for rule, number in wrong.items() if number >= enough}
        found[table] = often if kept else dict(rules)
    return found


def holds_nothing(report: "ImportReport") -> bool:
    """Whether no line of the log became or would have become a row, as of a header alone."""
    measured = any(count for table, count in report.rows.items() if table != "nodes")
    return not (measured or report.quarantined or report.lines.kept > report.lines.derived)


def _capacity(text: str) -> tuple[str, float]:
    from logs_schema.errors import ConfigError
    from logs_schema.formats.pool_size import parse_capacity

    try:
        return parse_capacity(text)
    except ConfigError as error:
        raise ArgumentTypeError(f"{error.what}; allowed: {error.allowed}") from error


def _or_shipped(text: str) -> Path:
    """The path; where nothing is there and a shipped mapping has its name, that."""
    path = Path(text)
    return path if path.exists() else _shipped().get(text, path)


def _shipped() -> dict[str, Path]:
    """The shipped mappings by their names."""
    folders = (MAPPINGS / kind for kind in ("requests", "metrics"))
    return {path.name: path for folder in folders for path in sorted(folder.glob("*.toml"))}


def _instant(text: str) -> datetime:
    try:
        instant = datetime.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(
            f"{text!r} is no date such as 2013-02-01 or 2013-02-01T06:00+00:00"
        ) from error
    return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant
