"""What single steps share: an optional configuration file, and writing one product."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluation.configuration import RunConfig


def add_step_arguments(parser: ArgumentParser, product: str) -> None:
    """Declare what every single step takes."""
    parser.add_argument("--out", metavar=product.upper(), required=True, type=Path, help="folder to write")
    parser.add_argument("--config", metavar="CONFIG.toml", type=Path, help="settings, as for `schedtwin run`")
    parser.add_argument("--seed", metavar="N", type=int, help="seed (default: the configuration's)")
    parser.add_argument("--replace", action="store_true", help=f"replace a {product} that is already there")


def settings_of(arguments: Namespace) -> "RunConfig":
    """The configuration, with the seed of the command line in its place."""
    from dataclasses import replace

    from evaluation.configuration import RunConfig, load_config

    config = load_config(arguments.config) if arguments.config is not None else RunConfig()
    return config if arguments.seed is None else replace(config, seed=arguments.seed)


def write_product(
    arguments: Namespace, kind: str, made_from: Mapping[str, Path], config: Any, build: Callable[[Path], Any]
) -> dict[str, Any]:
    """Writes one product aside and renames it into place; what `build` returns goes into its manifest."""
    from evaluation.records import to_plain
    from logs_schema.product import read_manifest, writing

    hashes = {name: read_manifest(path).content_hash for name, path in made_from.items()}
    extra: dict[str, Any] = {}
    with writing(
        arguments.out,
        kind,
        made_from=hashes,
        config=to_plain(config),
        seed=arguments.seed,
        extra=extra,
        replace=arguments.replace,
    ) as folder:
        extra.update(build(folder))
    return extra
