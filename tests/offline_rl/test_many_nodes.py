"""Of very many nodes training takes fewer windows and streams: its time and memory grow with both."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import jax
import numpy as np
import pytest

from logs_schema.errors import ConfigError
from offline_rl.recipes import ladder
from offline_rl.recipes.cloning import affordable
from offline_rl.recipes.config import MIN_EPISODES, TrainingConfig, even_streams
from twin.placement.encoding import Encoding
from twin.placement.history import MOST_NODES
from twin.placement.slots import MOST_WHOLE, VIEW_SLOTS, num_views
from twin.placement.windows import Windows


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


def test_nodes_with_very_many_slots_count_as_several() -> None:
    assert num_views(7, MOST_WHOLE) == 7
    assert num_views(7, 10 * VIEW_SLOTS) == 70


def test_a_referee_of_very_many_nodes_plays_some_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ladder, "select", lambda _, chosen: chosen)
    episodes = cast(Windows, SimpleNamespace(num_steps=1_024, num_windows=64))

    def played(num_views: int) -> Windows | np.ndarray:
        return ladder.refereed(episodes, cast(Encoding, SimpleNamespace(num_views=num_views)))

    assert played(MOST_NODES) is episodes
    some = played(2 * MOST_NODES)
    assert len(some) == ladder.NUM_REQUESTS // 2_048
    assert (some[0], some[-1]) == (0, 63)
    assert len(played(100 * MOST_NODES)) == MIN_EPISODES
