"""How `schedtwin inspect` describes bundles: one record a kind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.commands.assigner_text import assigner_facts, assigner_text
from evaluation.commands.bundle_text import bundle_facts, bundle_text
from evaluation.commands.scaling_text import scaling_facts, scaling_text
from logs_schema.errors import ConfigError
from offline_rl.bundle import ASSIGNMENT_KIND, KIND, SCALING_KIND, kind_of
from offline_rl.runner.loading import Backend


class BundlePage(NamedTuple):
    """The description of bundles of one kind.

    Attributes:
        facts: (folder, backend, expect=content hash or None, trust=public key or None) -> contents, after verification.
        text: Contents -> text for the terminal.
    """

    facts: Callable[..., dict[str, Any]]
    text: Callable[[dict[str, Any]], str]


def _of_one_copy(
    folder: Path, backend: Backend, *, expect: str | None = None, trust: Path | None = None
) -> dict[str, Any]:
    if backend != "numpy":
        raise ConfigError(f"a {SCALING_KIND} has one copy", where="--backend", allowed="numpy")
    return scaling_facts(folder, expect=expect, trust=trust)


PAGES = {
    KIND: BundlePage(bundle_facts, bundle_text),
    SCALING_KIND: BundlePage(_of_one_copy, scaling_text),
    ASSIGNMENT_KIND: BundlePage(assigner_facts, assigner_text),
}


def page_of(folder: Path) -> BundlePage:
    """The page of a bundle's kind; that of `KIND` where a folder holds no bundle, whose reader refuses it."""
    return PAGES[kind_of(folder) or KIND]
