"""`schedtwin fit`: a twin from an archive."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

NAME = "fit"
HELP = "learn a twin from the training days of an archive"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.commands.settings import add_step_arguments

    parser.add_argument("archive", metavar="ARCHIVE", type=Path, help="folder written by schedtwin import")
    add_step_arguments(parser, "twin")


def run(arguments: Namespace) -> int:
    """Fit the twin and say how it went; 0."""
    from evaluation.commands.output import progress_of, show_result
    from evaluation.commands.settings import settings_of, write_product
    from evaluation.pipeline import build_twin

    config = settings_of(arguments)
    with progress_of(arguments) as progress:
        facts = write_product(
            arguments,
            "twin",
            {"archive": arguments.archive},
            {"days": config.days, "twin": config.twin, "population": config.population},
            lambda out: build_twin(
                out,
                arguments.archive,
                config.days,
                config.shifts,
                config.twin,
                config.seed,
                progress,
                population=config.population,
            ),
        )
    days = facts["train_days"]
    text = (
        f"twin of {len(days)} days, {days[0]} to {days[-1]}: {facts['num_train_offers']:,} offers, held-out "
        f"log-likelihood {facts['held_out_log_likelihood']:.3f} nats an offer\n"
        f"{_in_words(facts['population'])}\n"
        f"{arguments.out} written; next: schedtwin train {arguments.out} --out POLICY"
    )
    show_result(arguments, facts, text)
    return 0


def _in_words(facts: dict[str, Any]) -> str:
    if facts["kind"] == "none":
        return f"no population: {facts.get('refusal', 'none was asked for')}"
    rows = "requests" if facts["unit"] == "request" else "rows, equally many of every agent and day"
    told = f"population: {facts['kind']} of {facts['num_rows']:,} {rows}"
    return "; ".join([told, *([facts["fallback"]] if "fallback" in facts else []), *facts["warnings"]])
