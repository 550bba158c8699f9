"""`schedtwin run`: the whole job from a configuration, resumable."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.inputs import refuse_missing_log

NAME = "run"
DEMO = Path(__file__).parents[1] / "examples" / "demo.toml"
HELP = "import, fit, train, compare and export as one resumable job"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "config", metavar="CONFIG.toml", type=Path, nargs="?", default=DEMO,
        help="what to do (default: the demonstration, on a log that the project writes itself)",
    )  # fmt: skip
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, help="work folder (default: ./ and the configuration's name)"
    )


def run(arguments: Namespace) -> int:
    """Run the job or what is left of it, and say what came of it; 0."""
    refuse_missing_log(arguments.config)
    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.configuration import load_config
    from evaluation.pipeline import load_comparison
    from evaluation.run import run as run_steps
    from evaluation.tabulation import tabulate

    config = load_config(arguments.config)
    workdir = arguments.out or Path(arguments.config.stem)
    title = arguments.config.stem
    with progress_of(arguments) as progress:
        products = run_steps(config, arguments.config.parent, workdir, progress, title=title)
    comparison = load_comparison(products["comparison"])
    result = {name: str(path) for name, path in products.items()} | {"comparison_data": comparison.to_json()}
    lines = [as_text(tabulate(comparison)), f"report: {products['report']}"]
    if "bundle" in products and (products["bundle"] / "bundle").exists():
        lines.append(f"bundle: {products['bundle'] / 'bundle'}")
    show_result(arguments, result, "\n".join(lines))
    return 0
