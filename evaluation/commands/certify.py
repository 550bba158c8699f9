"""`schedtwin certify`: the accuracy of a twin on held-out days."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.common_arguments import add_inputs
from evaluation.commands.engine_arguments import add_engine_arguments, refuse_idle_engine
from evaluation.commands.settings import add_config_arguments

NAME = "certify"
HELP = "compare a twin with held-out days; exit status 0: passed, 3: failed, 4: cannot tell"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    add_inputs(parser, "twin", "archive")
    parser.add_argument(
        "--days",
        metavar="LIST",
        help="held-out days, such as 2024-01-05,2024-01-08..2024-01-10 (default: the first ones after training)",
    )
    parser.add_argument(
        "--population",
        metavar="POPULATION",
        type=Path,
        help="folder of a fitted population (default: TWIN/population, if it exists)",
    )
    parser.add_argument("--out", metavar="REPORT.html", type=Path, help="also write the report to this file")
    parser.set_defaults(writes_page=True)
    parser.add_argument(
        "--keep",
        metavar="CERTIFICATE",
        type=Path,
        help="folder of the certificate (default: TWIN.certificate, where schedtwin train looks for it)",
    )
    add_config_arguments(parser)
    add_engine_arguments(parser)


def run(arguments: Namespace) -> int:
    """Certify, write the page, show the lines; 0 passed, 3 failed, 4 cannot tell."""
    from dataclasses import replace

    from evaluation.certify.certificate import EXIT_STATUS
    from evaluation.certify.held_out import parse_days
    from evaluation.certify.page import as_table, reasons_in_words
    from evaluation.certify.persistence import PAGE, folder_beside, load_certificate, usual_folders
    from evaluation.commands.output import as_text, show_result
    from evaluation.commands.settings import make_step, settings_of
    from evaluation.problems.certificates import certificate_plan
    from evaluation.problems.kits import kit_of

    refuse_idle_engine(arguments, kit_of(arguments.twin), NAME)
    configured = settings_of(arguments)
    config = configured.certify
    if arguments.seed is not None:
        config = replace(config, seed=arguments.seed)
    days = None if arguments.days is None else parse_days(arguments.days)
    kept = folder_beside(arguments.twin) if arguments.keep is None else arguments.keep
    plan = certificate_plan(config, days, population=arguments.population, engine=configured.engine)
    make_step(arguments, plan, {"archive": arguments.archive, "twin": arguments.twin}, out=kept)
    certificate, page = load_certificate(kept), kept / PAGE
    if arguments.out is not None:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_bytes(page.read_bytes())
        page = arguments.out
    why = "".join(f"{one}\n" for one in reasons_in_words(certificate))
    words = f"{as_text(as_table(certificate))}{why}{certificate.in_words()}"
    text = f"{words}\nreport: {page}\ncertificate: {kept}"
    if kept.absolute() not in usual_folders(arguments.twin):
        text += f"\nschedtwin train finds it there with --certificate {kept}"
    show_result(arguments, certificate.to_json(), text)
    return EXIT_STATUS[certificate.verdict]
