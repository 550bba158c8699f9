"""`schedtwin serve`: an exported policy as a Kubernetes scheduler extender and a plain JSON service."""

import json
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path
from typing import Any

from evaluation.commands.expecting import add_expected
from evaluation.commands.options import add_options, given

NAME = "serve"
HELP = "serve an exported policy: Kubernetes scheduler extender and plain JSON"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from offline_rl.serving.config import ServerConfig, ServiceConfig

    parser.add_argument(
        "bundle", metavar="BUNDLE", type=Path, help="folder written by schedtwin export or assign train"
    )
    add_options(
        parser, ServerConfig, "host", "port", "token_file", "tls_cert", "tls_key", "log", "inventory", "rule",
        "backend",
    )  # fmt: skip
    add_options(
        parser, ServiceConfig, "shadow", "canary", "explore", "fallback", "seed", deadline_ms="deadline_s"
    )
    add_expected(parser)


def run(arguments: Namespace) -> int:
    """Serve until stopped; 0."""
    from logs_schema.errors import ConfigError
    from logs_schema.extras import how_to_install
    from offline_rl.serving.config import ServerConfig, ServiceConfig

    try:
        from offline_rl.serving.server import serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"serving needs '{error.name}', which is not installed", advice=how_to_install("serve")
        ) from error
    service = given(ServiceConfig(), arguments)
    config = ServerConfig(arguments.bundle, service=service, expect=arguments.expect, trust=arguments.trust)

    def ready(facts: dict[str, Any]) -> None:
        if arguments.json:
            print(json.dumps(facts), flush=True)
            return
        mode = "shadow" if service.shadow else f"policy for {100.0 * service.share:.4g}% of requests"
        print(f"serving {facts['bundle']} on {facts['url']} ({mode}); Ctrl-C ends it", flush=True)

    with suppress(KeyboardInterrupt):
        serve(given(config, arguments), ready)
    return 0
