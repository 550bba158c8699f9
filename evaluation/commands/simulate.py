"""`schedtwin simulate`: logs of a simulated cluster with known ground truth."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path

from evaluation.commands.common_arguments import add_out, add_world_arguments
from evaluation.commands.options import add_options, day, given, refuse_idle, seed, set_fields

NAME = "simulate"
HELP = "write the logs of a simulated cluster with known ground truth as an archive"
OF_APPLICATIONS = ("interval_s", "rates")
"""Options of one kind of system; others refuse them."""


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments; presets and behaviours are those of the simulator."""
    from evaluation.problems.orchestration.simulating import SlotLogConfig
    from evaluation.simulator.applications.log import OPERATORS
    from evaluation.simulator.applications.presets import APPLICATIONS
    from evaluation.simulator.behaviour import BEHAVIOURS
    from evaluation.simulator.patterns import PATTERNS
    from evaluation.simulator.presets import PRESETS

    parser.formatter_class = RawDescriptionHelpFormatter
    presets = (
        f"  {world.name:<22}{len(world.nodes)} nodes, {len(world.services)} services, "
        f"{world.requests_per_day:,.0f} requests a day"
        for world in PRESETS
    )
    behaviours = (f"  {one.name:<22}{one.description}" for one in BEHAVIOURS)
    patterns = (f"  {one.name:<22}{one.description}" for one in PATTERNS)
    applications = (
        f"  {one.name:<22}application of {len(one.services)} microservices, {one.rate_per_s:,.0f} requests a second"
        for one in APPLICATIONS
    )
    of_applications = f"  of applications: {' (default), '.join(OPERATORS)}"
    parser.epilog = "\n".join(
        ("presets:", *presets, *applications, "", "behaviours:", *behaviours, of_applications, "",
         "patterns of arrival:", *patterns)
    )  # fmt: skip
    add_world_arguments(parser, "small")
    parser.add_argument("--days", metavar="N", type=int, default=40, help="number of days (default: 40)")
    parser.add_argument(
        "--behaviour",
        metavar="NAME",
        help="policy that writes the log (default: mix; of applications: operator)",
    )
    parser.add_argument(
        "--seed", metavar="N", type=seed, default=0, help="seed of the histories (default: 0)"
    )
    parser.add_argument(
        "--first-day",
        metavar="DATE",
        type=day,
        default=date(2024, 1, 1),
        help="calendar day of day 0 (default: 2024-01-01)",
    )
    parser.add_argument(
        "--arrivals",
        metavar="ARCHIVE",
        type=Path,
        help="archive of a log whose requests replace the generated ones",
    )
    parser.add_argument(
        "--pattern", metavar="NAME", help="with --arrivals: pattern of the days (default: logged)"
    )
    parser.add_argument(
        "--interval-s",
        metavar="S",
        type=float,
        help="of applications: seconds between two decisions (default: 30)",
    )
    parser.add_argument(
        "--rates",
        metavar="FILE",
        type=Path,
        help="of applications: a series of request rates, a line an interval, in place of the daily pattern",
    )
    parser.add_argument(
        "--slots",
        action="store_true",
        help="run the cluster by slots, with access points and replicas, so that orchestration can be learned",
    )
    add_options(parser, SlotLogConfig, "dispatch", "orchestration", "explored")
    add_out(parser, "archive")


def run(arguments: Namespace) -> int:
    """Simulate the log and print a summary; 0."""
    from evaluation.problems.orchestration.simulating import SlotLogConfig
    from evaluation.simulator.applications.presets import is_application

    by_slots = tuple(set_fields(SlotLogConfig, arguments))
    if arguments.world is None and is_application(arguments.preset, "--preset"):
        _refuse_given(
            arguments, ("slots",), "an application", "a cluster, such as --preset kmps --slots", by_slots
        )
        _refuse_given(
            arguments, ("arrivals", "pattern"), "an application", "a series of request rates: --rates"
        )
        return _application(arguments)
    _refuse_given(arguments, OF_APPLICATIONS, "a cluster", "an application, such as --preset chain")
    if arguments.slots:
        of_events = ("behaviour", "pattern", "arrivals")
        _refuse_given(
            arguments, of_events, "a cluster by slots", "--dispatch and --orchestration, generated requests"
        )
        return _run_slots(arguments)
    _refuse_given(arguments, (), "a cluster without --slots", "a cluster by slots", by_slots)
    return _cluster(arguments)


def _refuse_given(
    arguments: Namespace, names: Sequence[str], system: str, allowed: str, fields: Sequence[str] = ()
) -> None:
    """ConfigError where an option was given that says nothing of the system: one of `names`, or that set `fields`."""
    values = {name: getattr(arguments, name) for name in names}
    said = [name for name, value in values.items() if value is not None and value is not False]
    refuse_idle(
        (f"--{name.replace('_', '-')}" for name in (*said, *fields)),
        system,
        where="simulate",
        allowed=allowed,
        advice="leave out what belongs to another kind of system",
    )


def _application(arguments: Namespace) -> int:
    from evaluation.commands.output import follow_up, show_result
    from evaluation.simulator.applications.load import read_series
    from evaluation.simulator.applications.log import OPERATOR, simulate_application
    from evaluation.simulator.applications.presets import application
    from logs_schema.errors import counted

    report = simulate_application(
        application(arguments.preset),
        arguments.days,
        arguments.behaviour or OPERATOR,
        arguments.seed,
        arguments.out,
        first_day=arguments.first_day,
        interval_s=30.0 if arguments.interval_s is None else arguments.interval_s,
        series=read_series(arguments.rates) if arguments.rates else None,
        replace=arguments.replace,
    )
    text = (
        f"{report.num_rows:,} deployment samples on {counted(report.num_days, 'day')} from {report.first_day}: "
        f"{report.num_requests:,} requests, {report.num_failures / max(report.num_requests, 1):.2%} failed, "
        f"95 % within {report.mean_p95_s:.3f} s in the mean interval\n"
        f"{report.archive} written; {follow_up('check', report.archive)}"
    )
    show_result(arguments, asdict(report), text)
    return 0


def _cluster(arguments: Namespace) -> int:
    from evaluation.commands.output import follow_up, progress_of, show_result
    from evaluation.simulator.logs import simulate
    from evaluation.simulator.world_files import chosen_world
    from logs_schema.errors import ConfigError, counted

    if arguments.pattern and not arguments.arrivals:
        raise ConfigError(
            "a pattern of arrival without arrivals",
            where=f"--pattern {arguments.pattern}",
            allowed="a pattern together with --arrivals: generated requests follow the world's own pattern",
            advice="name the archive of a log with --arrivals, or leave --pattern out",
        )
    with progress_of(arguments) as progress, progress.stage("simulate", unit="days") as stage:
        report = simulate(
            chosen_world(arguments.preset, arguments.world),
            arguments.days,
            arguments.behaviour or "mix",
            arguments.seed,
            arguments.out,
            first_day=arguments.first_day,
            arrivals=arguments.arrivals,
            pattern=arguments.pattern or "logged",
            replace=arguments.replace,
            progress=stage,
        )
    share = 1.0 / max(report.num_requests, 1)
    text = (
        f"{report.num_requests:,} requests on {counted(report.num_days, 'day')} from {report.first_day}: "
        f"{report.num_on_time * share:.1%} on time, {report.num_rejected * share:.1%} rejected\n"
        f"{report.archive} written, propensities in {report.truth}; {follow_up('check', report.archive)}"
    )
    show_result(arguments, asdict(report), text)
    return 0


def _run_slots(arguments: Namespace) -> int:
    from evaluation.commands.output import follow_up, progress_of, show_result
    from evaluation.problems.orchestration.simulating import SlotLogConfig, simulate_slots
    from evaluation.simulator.world_files import chosen_world
    from logs_schema.errors import counted

    config = given(SlotLogConfig(), arguments)
    world = chosen_world(arguments.preset, arguments.world)
    with progress_of(arguments) as progress, progress.stage("simulate", unit="days") as stage:
        report = simulate_slots(
            world,
            arguments.days,
            config,
            arguments.seed,
            arguments.out,
            first_day=arguments.first_day,
            replace=arguments.replace,
            progress=stage,
        )
    share = 1.0 / max(report.num_requests, 1)
    following = follow_up("fit", "--problem", "orchestration", report.archive, "--out", "twin")
    text = (
        f"{report.num_requests:,} requests on {counted(report.num_days, 'day')} from {report.first_day}: "
        f"{report.num_on_time * share:.1%} on time, {report.num_never_sent * share:.1%} never sent\n"
        f"{report.archive} written; {following}"
    )
    show_result(arguments, asdict(report), text)
    return 0
