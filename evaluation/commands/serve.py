"""`schedtwin serve`: an exported policy as a Kubernetes scheduler extender and a plain JSON service."""

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from evaluation.commands.expecting import add_expected

NAME = "serve"
HELP = "serve an exported policy: Kubernetes scheduler extender and plain JSON"
FALLBACKS = ("least_loaded", "fewest_requests", "any")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "bundle", metavar="BUNDLE", type=Path, help="folder written by schedtwin export or assign train"
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: this machine only)")
    parser.add_argument("--port", type=int, default=8900, help="0 takes any free one (default: 8900)")
    parser.add_argument(
        "--token-file", metavar="FILE", type=Path, help="file with the token that callers present"
    )
    parser.add_argument("--tls-cert", metavar="PEM", type=Path, help="certificate; with --tls-key")
    parser.add_argument("--tls-key", metavar="PEM", type=Path, help="its key")
    parser.add_argument(
        "--log",
        metavar="FOLDER",
        type=Path,
        help="where decisions are logged (default: nowhere); not for queues",
    )
    parser.add_argument(
        "--shadow",
        action="store_true",
        help="answer by the fallback, log what the policy would have done; a queue's answers say it beside",
    )
    parser.add_argument(
        "--canary",
        metavar="SHARE",
        type=_share,
        default=1.0,
        help="share of requests the policy answers (default: 1)",
    )
    parser.add_argument(
        "--explore",
        metavar="SHARE",
        type=_share,
        default=0.0,
        help="share answered by any feasible node (default: 0); not for queues",
    )
    parser.add_argument(
        "--deadline-ms", metavar="MS", type=_positive, default=50.0,
        help="after which the fallback answers (default: 50)",
    )  # fmt: skip
    parser.add_argument(
        "--fallback",
        choices=FALLBACKS,
        default=FALLBACKS[0],
        help=f"heuristic where no rule answers (default: {FALLBACKS[0]})",
    )
    parser.add_argument(
        "--rule", metavar="BUNDLE", type=Path,
        help="bundle of a rule of the same training that answers where the policy does not (default: the one that "
        "BUNDLE holds)",
    )  # fmt: skip
    parser.add_argument("--backend", choices=("numpy", "onnx"), default="numpy", help="default: numpy")
    parser.add_argument("--seed", metavar="N", type=int, help="of the draws (default: from the system)")
    add_expected(parser)


def run(arguments: Namespace) -> int:
    """Serve until told to stop; 0."""
    from logs_schema.errors import ConfigError
    from logs_schema.extras import how_to_install

    try:
        from offline_rl.serving.fallbacks import FALLBACKS as KNOWN
        from offline_rl.serving.server import ServerConfig, serve
        from offline_rl.serving.service import ServiceConfig
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"serving needs '{error.name}', which is not installed", advice=how_to_install("serve")
        ) from error
    service = ServiceConfig(
        deadline_s=arguments.deadline_ms / 1000.0,
        shadow=arguments.shadow,
        canary=arguments.canary,
        explore=arguments.explore,
        fallback=next(one for one in KNOWN if one.name == arguments.fallback),
        seed=arguments.seed,
    )
    config = ServerConfig(
        arguments.bundle, arguments.host, arguments.port, arguments.token_file, arguments.tls_cert, arguments.tls_key,
        arguments.log, arguments.backend, service, arguments.expect, arguments.trust, arguments.rule,
    )  # fmt: skip

    def ready(facts: dict[str, Any]) -> None:
        if arguments.json:
            print(json.dumps(facts), flush=True)
            return
        mode = "shadow" if service.shadow else f"policy for {service.share:.0%} of requests"
        print(f"serving {facts['bundle']} on {facts['url']} ({mode}); Ctrl-C ends it", flush=True)

    try:
        serve(config, ready)
    except KeyboardInterrupt:
        return 0
    return 0


def _share(text: str) -> float:
    value = float(text)
    if not 0.0 <= value <= 1.0:
        raise ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def _positive(text: str) -> float:
    value = float(text)
    if not 0.0 < value <= 60_000.0:
        raise ArgumentTypeError(f"{text} is not more than 0 and at most 60000")
    return value
