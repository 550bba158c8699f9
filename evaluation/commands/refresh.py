"""`schedtwin refresh`: the daily job that adds new decisions and exports a new policy if it is better."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.inputs import refuse_missing_log
from evaluation.commands.options import add_options, given

NAME = "refresh"
HELP = (
    "the daily job: append a decision log, refit, certify, retrain, compare with the running policy, export the "
    "better one; exit status 0: exported, 10: kept the running policy (also without new decisions or need), "
    "11: certificate failed, 12: certificate cannot tell"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from evaluation.commands.settings import add_problem_arguments
    from evaluation.pipeline.refresh.config import RefreshConfig

    parser.add_argument("config", metavar="CONFIG.toml", type=Path, help="as for schedtwin run")
    parser.add_argument(
        "--log",
        metavar="DECISIONS",
        type=Path,
        required=True,
        help="decision log: the folder of schedtwin serve --log, CSV or Parquet tables in this project's format, or "
        "an archive that schedtwin import made of them; of a queue one of the latter, with a table requests of jobs",
    )
    parser.add_argument(
        "--work",
        metavar="FOLDER",
        type=Path,
        required=True,
        help="work folder, the same every day (and the same as that of schedtwin run, if there was one)",
    )
    parser.add_argument(
        "--bundle",
        metavar="RUNNING",
        type=Path,
        help="bundle of the running policy (default: that of the last export in FOLDER, if there is one); it is not "
        "remembered: name it at every refresh until one has exported",
    )
    add_options(parser, RefreshConfig, "accept", "judge_days", "force", "when_needed", "reward_below")
    add_problem_arguments(parser)


def run(arguments: Namespace) -> int:
    """Refresh and print the decision with its reason; 0 exported, 10 kept, 11 failed, 12 cannot tell."""
    refuse_missing_log(arguments.config)
    from evaluation.commands.output import progress_of, show_result
    from evaluation.commands.settings import options_of
    from evaluation.pipeline.refresh.config import RefreshConfig
    from evaluation.pipeline.refresh.deciding import EXIT_STATUS, Result
    from evaluation.pipeline.refresh.job import BUNDLE, refresh
    from evaluation.pipeline.refresh.standing import TEXT
    from evaluation.problems.configuration import load_config

    settings = given(RefreshConfig(), arguments)
    config = load_config(arguments.config)
    with progress_of(arguments) as progress:
        decision, products = refresh(
            config,
            arguments.config.parent,
            arguments.log,
            arguments.work,
            arguments.bundle,
            settings,
            progress,
            options=options_of(arguments),
        )
    lines = [decision.in_words(), f"report: {products['decision'] / TEXT}"]
    bundle = products["bundle"] / BUNDLE if decision.result is Result.EXPORTED else None
    if bundle is not None:
        lines.append(f"bundle: {bundle}")
    result = decision.to_json() | {"bundle": None if bundle is None else str(bundle)}
    show_result(arguments, result, "\n".join(lines))
    return EXIT_STATUS[decision.result]
