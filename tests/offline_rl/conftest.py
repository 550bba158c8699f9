"""Bundles that runners are tried on: free of its nodes, bound to them, and one that counts cold starts."""

from dataclasses import replace

import numpy as np
import pytest

from offline_rl.placement_contract import placement_contract
from offline_rl.runner import load
from offline_rl.runner.features import NODE_FEATURES
from tests.offline_rl.bundles import BOUND, FREE, made_policy, made_system


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    made, _ = made_system()
    encoding = replace(made, cluster=replace(made.cluster, cold=None))
    folder = tmp_path_factory.mktemp("runner")
    num = len(placement_contract(encoding, FREE).context_features) + 4 * len(NODE_FEATURES)
    ranges = np.full(num, 0.0), np.full(num, 1.0)
    made_policy(folder / "free", encoding, FREE, ranges=ranges)
    made_policy(folder / "bound", encoding, BOUND, ranges=ranges, certificate="c" * 64, licence="ours")
    made_policy(folder / "cold", made, FREE)
    return folder


@pytest.fixture(scope="module", params=["free", "bound"])
def policy(request, bundles):
    return load(bundles / request.param)


@pytest.fixture(scope="module")
def free(bundles):
    return load(bundles / "free")
