"""What users bring to assign requests: what a function is told it gets and may not do, bundles of other problems."""

import re
from dataclasses import replace

import numpy as np
import pytest

from evaluation import compare, shifted_days
from evaluation.problems.assignment.compared_assigners import SIGNATURE, compared_assigners
from logs_schema import Archive
from logs_schema.errors import ConfigError
from tests.assignment.archives import write_log
from tests.assignment.making import plain_costs
from tests.serving.bundles import make_bundle
from twin import fit
from twin.assignment.types import Costs


def overwrites(costs):
    """The first edge, which is not there, as if it were."""
    costs.work_s[:] = 1.0
    return np.zeros(len(costs.source), int)


def test_what_is_said_of_a_function_is_what_it_gets():
    (said,) = re.findall(r"of a round \((.*?)\)", SIGNATURE)
    assert set(re.findall(r"\w+_s\b|source", said)) == set(Costs._fields)


def test_a_function_that_writes_to_its_costs_chooses_no_edge_that_is_not_there():
    costs = plain_costs(np.array([[np.inf, 1.0]]))
    solve = compared_assigners(None, {"mine": overwrites})[1].ready["mine"](np.random.default_rng(0))
    with pytest.raises(ConfigError, match="'mine' chose an edge that is not there"):
        solve(costs)


def test_a_bundle_of_another_problem_is_refused_by_its_problem(tmp_path):
    refused = compared_assigners(None, {"old": make_bundle(tmp_path / "bundle")})[1].refused["old"]
    assert "policy 'old': this bundle is of the problem 'placement'" in str(refused)
    assert "a bundle of assignment" in str(refused)


def test_a_twin_is_not_compared_on_the_log_of_another_system(tmp_path):
    log = Archive(write_log(tmp_path / "log", num_days=3, num_rows=60))
    split = shifted_days(log, "0d", num_days=1, min_requests=20)
    twin = fit("assignment", split.train)
    twin = replace(twin, compute={f"another {name}": one for name, one in twin.compute.items()})
    with pytest.raises(ConfigError, match="the archive does not know the nodes another n0"):
        compare({}, twin, split.test)
