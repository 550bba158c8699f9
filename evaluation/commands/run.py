"""`schedtwin run`: the whole job from a configuration, resumable."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from evaluation.commands.engine_arguments import add_engine_arguments, engine_from
from evaluation.commands.inputs import refuse_missing_log
from logs_schema.errors import ConfigError

NAME = "run"
EXAMPLES = Path(__file__).parents[1] / "examples"
DEMO = "demo"
NAMES = ", ".join(sorted(one.stem for one in EXAMPLES.glob("*.toml")))
HELP = (
    "import, fit, certify, train, compare and export as one resumable job; exit status 3 or 4 where the twin's "
    "certificate failed or cannot tell, and so nothing was trained"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "config",
        metavar="CONFIG.toml",
        type=_configuration,
        nargs="?",
        help="configuration: a file, or the name of an example: "
        f"{NAMES} (default: {DEMO}, on a simulated log)",
    )
    parser.add_argument(
        "--config",
        dest="named",
        metavar="CONFIG.toml",
        type=_configuration,
        help="the same, as for other commands",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", type=Path, help="work folder (default: ./ and the configuration's name)"
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="train and export also in a twin that has not passed its certificate; reports state it",
    )
    parser.set_defaults(other_names=f"a file, or one of the examples {NAMES}")
    add_engine_arguments(parser)


def run(arguments: Namespace) -> int:
    """Run the job or what is missing of it, and print the result; 0 done, 3 or 4 where the certificate ended it."""
    if arguments.named is not None:
        if arguments.config is not None:
            raise ConfigError(
                f"two configurations, {arguments.config} and {arguments.named}",
                where="run",
                advice="leave out one of the two",
            )
        arguments.config = arguments.named
    arguments.config = arguments.config or _configuration(DEMO)
    refuse_missing_log(arguments.config)
    from dataclasses import replace

    from evaluation.certify.certificate import EXIT_STATUS
    from evaluation.certify.lines import Verdict
    from evaluation.certify.page import withheld_in_words
    from evaluation.certify.persistence import KIND, PAGE, certification_in, load_certificate
    from evaluation.commands.output import as_text, progress_of, show_result
    from evaluation.comparison.products import load_comparison
    from evaluation.comparison.tabulation import tabulate
    from evaluation.pipeline.run import run as run_steps
    from evaluation.problems.configuration import load_config
    from evaluation.problems.kits import kit_of
    from logs_schema.product import read_manifest

    config = load_config(arguments.config)
    config = replace(config, engine=engine_from(arguments, config.engine))
    workdir = arguments.out or Path(arguments.config.stem)
    title = arguments.config.stem
    with progress_of(arguments) as progress:
        products = run_steps(
            config, arguments.config.parent, workdir, progress, title=title, force=arguments.force
        )
    comparison = load_comparison(products["comparison"])
    result = {name: str(path) for name, path in products.items()} | {"comparison_data": comparison.to_json()}
    found = certification_in(products[KIND])
    kit = kit_of(products["twin"])
    lines = [as_text(tabulate(comparison)), f"report: {products['report']}"]
    if "policy" in products:
        lines += kit.trained(read_manifest(products["policy"]).extra)
    if "bundle" in products:
        remark = f" ({kit.uncertified(found)})" if found.trouble else ""
        lines.append(f"bundle: {products['bundle'] / 'bundle'}{remark}")
    is_held_back = read_manifest(products["comparison"]).config.get("held_back") is not None
    if is_held_back:
        lines.append(found.held_back)
        lines += [f"  {reason}" for reason in withheld_in_words(load_certificate(products[KIND]))]
        lines.append(f"certificate: {products[KIND] / PAGE}")
    show_result(arguments, result | {"certificate_verdict": found.verdict}, "\n".join(lines))
    return EXIT_STATUS[Verdict(found.training)] if is_held_back else 0


def _configuration(text: str) -> Path:
    """The file of a configuration, or of the example of that name, whose work folder has that name too."""
    example = EXAMPLES / f"{text}.toml"
    return example if not Path(text).is_file() and example.is_file() else Path(text)
