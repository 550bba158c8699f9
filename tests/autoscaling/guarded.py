"""A policy of two deployments, and metrics that it decides by."""

import numpy as np

from offline_rl.bundle import GOLDEN
from offline_rl.runner.scaling import DeploymentSetting, Granted, Reading, ScalingPolicy, ScalingSetting

NAMES, INTERVAL_S = ("cart", "front"), 30.0


def setting_of(form="students"):
    deployments = tuple(DeploymentSetting(name, 0.25, 2.0, 0.25, 1.0, 1, 8, 20.0, 0.5) for name in NAMES)
    return ScalingSetting(form, deployments, INTERVAL_S, 1, 0.25, 0.125, 0.5, (1.0, 1.0, 2.0), 0.25, 0.95)


def policy_of(place):
    """Students that always change replicas by `place` of their reach."""
    arrays = {}
    for layer, (inputs, outputs) in enumerate([(12, 20), (20, 12), (12, 3)]):
        arrays[f"Dense_{layer}/kernel"] = np.zeros((2, inputs, outputs), np.float32)
        arrays[f"Dense_{layer}/bias"] = np.zeros((2, outputs), np.float32)
    arrays["Dense_2/bias"][:, 2] = np.arctanh(place)
    return ScalingPolicy(setting_of(), arrays), arrays


def discrete_policy():
    """Students of steps that always add replicas."""
    _, arrays = policy_of(0.0)
    arrays["Dense_2/kernel"], arrays["Dense_2/bias"] = np.zeros((2, 12, 9)), np.zeros((2, 9))
    arrays["Dense_2/bias"][:, 8] = 1.0
    return ScalingPolicy(setting_of("students_discrete"), arrays)


def readings(rate=10.0, cores=0.2, number=2):
    ones = np.ones(number)
    return Reading(rate * ones, cores * ones, 0.3 * ones, 2.0 * ones, 0.05 * ones, 0.0 * ones,
                   np.asarray(10.0), np.asarray(0.2), np.asarray(0.0), np.asarray(600.0))  # fmt: skip


GRANTED = Granted(np.array([0.5, 0.5]), np.array([0.5, 0.5]), np.array([2.0, 2.0]))


def write_golden(folder, policy, **changed):
    """Golden decisions of a policy at one reading, 32 times, some of their arrays replaced."""
    now = readings()
    golden = {"places": np.stack([policy.places(GRANTED, now, now)] * 32)}
    golden |= {f"granted/{name}": np.stack([leaf] * 32) for name, leaf in GRANTED._asdict().items()}
    for when in ("now", "before"):
        golden |= {f"{when}/{name}": np.stack([leaf] * 32) for name, leaf in now._asdict().items()}
    np.savez(folder / GOLDEN, **golden | changed)
