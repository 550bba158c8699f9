"""A comparison of orders that is killed loses one order of one judge on one shift."""

import json

import pytest

from tests.dying import resumed
from tests.ordering.making import QUICK


@pytest.mark.slow
def test_a_comparison_that_is_killed_goes_on_and_ends_the_same(queue_made, tmp_path, monkeypatch):
    """The user's own plays again: the name of a rule does not identify its code."""
    folder, _ = queue_made
    (tmp_path / "order.toml").write_text(QUICK.replace("0d,7d", "7d").replace("weeks = 2", "weeks = 1"))
    words = ("compare", folder / "archive", folder / "twin", "--config", tmp_path / "order.toml")
    words += ("--policy", "mine=twin.ordering.rules:SAF")
    saved = resumed(monkeypatch, tmp_path, *words, dies_at=30)
    assert "replay--7d--sjf+easy-0" in saved
    assert not [name for name in saved if "mine" in name]
    assert saved[0].startswith("ladder")
    found = json.loads((tmp_path / "calm" / "product" / "comparison.json").read_text())
    assert "mine" in {policy["name"] for policy in found["policies"]}
