"""Golden decisions: what is no number proves nothing, neither of a policy nor of its goldens."""

import numpy as np
import pytest

from logs_schema.errors import ProductError
from offline_rl.runner.scaling import ScalingPolicy, prove
from tests.autoscaling.guarded import GRANTED, policy_of, readings, write_golden


def test_a_network_of_other_than_numbers_proves_nothing(tmp_path):
    policy, arrays = policy_of(0.6)
    write_golden(tmp_path, policy)
    prove(policy, tmp_path)
    broken = ScalingPolicy(policy.setting, {name: np.full_like(one, np.nan) for name, one in arrays.items()})
    with pytest.raises(ProductError, match="network's numbers are not finite"):
        prove(broken, tmp_path)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_place_that_is_no_number_proves_nothing(tmp_path, monkeypatch, bad):
    policy, _ = policy_of(0.6)
    write_golden(tmp_path, policy)
    places = policy.places(GRANTED, readings(), readings())
    monkeypatch.setattr(policy, "places", lambda *_: places + bad)
    with pytest.raises(ProductError, match="does not decide as the original"):
        prove(policy, tmp_path)


@pytest.mark.parametrize("name", ["places", "now/rate_per_s"])
def test_goldens_of_other_than_numbers_are_refused(tmp_path, name):
    policy, _ = policy_of(0.6)
    write_golden(tmp_path, policy, **{name: np.full((32, 3, 2) if name == "places" else (32, 2), np.nan)})
    with pytest.raises(ProductError, match=f"{name}: numbers that are not finite"):
        prove(policy, tmp_path)
