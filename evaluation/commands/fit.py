"""`schedtwin fit`: a twin from an archive."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluation.configuration import RunConfig
    from evaluation.ordering.config import OrderConfig

NAME = "fit"
HELP = "learn a twin from the training days of an archive"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.commands.settings import add_problem_arguments, add_step_arguments

    parser.add_argument("archive", metavar="ARCHIVE", type=Path, help="folder written by schedtwin import")
    add_problem_arguments(parser)
    add_step_arguments(parser, "twin")


def run(arguments: Namespace) -> int:
    """Fit the twin and say how it went; 0."""
    from evaluation.commands.settings import asked_of, settings_of
    from evaluation.ordering.fitting import choose_problem

    config = settings_of(arguments)
    order, told = choose_problem(config, arguments.archive, asked_of(arguments))
    if order is not None:
        return _fit_queue(arguments, config, order, told)
    return _fit_placement(arguments, config)


def _fit_queue(arguments: Namespace, config: "RunConfig", order: "OrderConfig", told: str) -> int:
    from evaluation.commands.output import progress_of, show_result
    from evaluation.commands.settings import write_product
    from evaluation.ordering.config import as_settings
    from evaluation.ordering.fitting import build_queue_twin

    with progress_of(arguments) as progress:
        facts = write_product(
            arguments,
            "twin",
            {"archive": arguments.archive},
            {"problem": "ordering", "days": config.days, **as_settings(order, "weeks", "processors", "pool")},
            lambda out: build_queue_twin(out, arguments.archive, config.days, order, progress),
        )
    queue = f"the queue of {facts['pool']}" if "pool" in facts else "a queue"
    text = (
        f"twin of {queue} on {facts['processors']:g} processors, {facts['first_day']} to {facts['last_day']}: "
        f"{facts['num_jobs']:,} jobs of {facts['num_users']:,} users{_too_large(facts['num_too_large'])}\n"
        f"{arguments.out} written; next: schedtwin certify {arguments.out} {arguments.archive}"
    )
    show_result(arguments, facts, f"{told}\n{text}" if told else text)
    return 0


def _too_large(num_jobs: int) -> str:
    return f", {num_jobs:,} of them larger than the pool: they never start" if num_jobs else ""


def _fit_placement(arguments: Namespace, config: "RunConfig") -> int:
    from evaluation.commands.output import progress_of, show_result
    from evaluation.commands.settings import write_product
    from evaluation.pipeline import build_twin
    from evaluation.spreading import spread_in_words

    with progress_of(arguments) as progress:
        facts = write_product(
            arguments,
            "twin",
            {"archive": arguments.archive},
            {
                "days": config.days,
                "twin": config.twin,
                "population": config.population,
                **config.imitation.as_settings(),
            },
            lambda out: build_twin(
                out,
                arguments.archive,
                config.days,
                config.shifts,
                config.twin,
                config.seed,
                progress,
                population=config.population,
                imitation=config.imitation,
            ),
        )
    days = facts["train_days"]
    text = (
        f"twin of {len(days)} days, {days[0]} to {days[-1]}: {facts['num_train_offers']:,} offers, held-out "
        f"log-likelihood {facts['held_out_log_likelihood']:.3f} nats an offer\n"
        f"{_kept_back_in_words(facts)}"
        f"{spread_in_words(facts['spread'])}\n"
        f"{_game_in_words(facts)}"
        f"{_in_words(facts['population'])}\n"
        f"{arguments.out} written; next: schedtwin train {arguments.out} --out POLICY"
    )
    show_result(arguments, facts, text)
    return 0


def _kept_back_in_words(facts: dict[str, Any]) -> str:
    return f"warning: {facts['days_kept_back']}\n" if "days_kept_back" in facts else ""


def _game_in_words(facts: dict[str, Any]) -> str:
    return f"{facts['imitation']['in_words']}\n" if "imitation" in facts else ""


def _in_words(facts: dict[str, Any]) -> str:
    if facts["kind"] == "none":
        return f"no population: {facts.get('refusal', 'none was asked for')}"
    rows = "requests" if facts["unit"] == "request" else "rows, equally many of every agent and day"
    told = f"population: {facts['kind']} of {facts['num_rows']:,} {rows}"
    return "; ".join([told, *([facts["fallback"]] if "fallback" in facts else []), *facts["warnings"]])
