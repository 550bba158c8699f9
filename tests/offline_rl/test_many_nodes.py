"""Of very many nodes training takes fewer windows and streams: its time and memory grow with both."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from offline_rl.recipes.cloning import affordable
from offline_rl.recipes.config import TrainingConfig, even_streams
from twin.placement.history import MOST_NODES


@pytest.mark.parametrize(
    ("num_choices", "wanted", "taken"),
    [(10, 16, 16), (MOST_NODES, 16, 16), (2 * MOST_NODES, 16, 8), (500, 16, 4), (10_000, 16, 2), (10_000, 1, 1)],
)  # fmt: skip
def test_of_many_choices_a_gradient_step_takes_fewer_windows(
    num_choices: int, wanted: int, taken: int
) -> None:
    legal = jax.ShapeDtypeStruct((num_choices, 1), np.bool_)
    assert affordable(wanted, SimpleNamespace(legal=legal)) == taken


def test_of_many_nodes_fewer_streams_are_dealt_to_the_members() -> None:
    config = TrainingConfig(num_streams=320, tuning_streams=72)
    few = even_streams(config, 5)
    assert (few.num_streams, few.tuning_streams) == (312, 72)  # three members, four minibatches
    assert even_streams(config, 5, MOST_NODES) == few
    many = even_streams(config, 5, 500)
    assert (many.num_streams, many.tuning_streams) == (72, 18)
    least = even_streams(config, 5, 100_000)
    assert (least.num_streams, least.tuning_streams) == (12, 3)
    assert even_streams(replace(config, tuning_streams=0), 5, 500).tuning_streams == 0
    with pytest.raises(ConfigError, match="cannot be dealt"):
        even_streams(replace(config, num_streams=11), 5, 500)
