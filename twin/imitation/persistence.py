"""An imitation as files: its configuration as JSON, its parameters as npz, no pickle."""

import json
from dataclasses import asdict
from pathlib import Path

import jax

from logs_schema.errors import ProductError
from twin.arrays import load_structure, save_arrays
from twin.imitation.config import DiscriminatorConfig, Guards, ImitationConfig
from twin.imitation.generator import Limits, init_generator
from twin.imitation.training import ImitationModel
from twin.placement.types import Cluster

_CONFIG, _MODEL = "imitation.json", "imitation.npz"


def save_imitation(folder: Path, config: ImitationConfig, model: ImitationModel) -> None:
    """Writes configuration and parameters into an existing folder."""
    (folder / _CONFIG).write_text(json.dumps(asdict(config), indent=1))
    save_arrays(folder / _MODEL, model)


def load_imitation(folder: Path, cluster: Cluster) -> tuple[ImitationConfig, ImitationModel]:
    """Reads what `save_imitation` wrote.

    Args:
        folder: Where.
        cluster: That of the encoding it was fitted with.

    Raises:
        ProductError: A file is missing or is not what it should be.
    """
    try:
        content = json.loads((folder / _CONFIG).read_text())
        content["discriminator"] = DiscriminatorConfig(**_tuples(content["discriminator"]))
        content["guards"] = Guards(**_tuples(content["guards"]))
        config = ImitationConfig(**_tuples(content))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ProductError(
            f"cannot read {_CONFIG}: {error}", where=str(folder), advice="make the imitation again"
        ) from error
    generator = jax.eval_shape(lambda key: init_generator(key, cluster, config), jax.random.key(0))
    model = load_structure(folder / _MODEL, ImitationModel(generator, Limits(0.0, 0.0)))
    return config, model._replace(limits=Limits(*(float(limit) for limit in model.limits)))


def _tuples(content: dict) -> dict:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in content.items()}
