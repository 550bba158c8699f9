"""The networks of a rollout in NumPy, one decision at a time: the answers' ensemble and the policy."""

import math
from statistics import NormalDist
from typing import Any

import numpy as np

from twin.placement.types import COMPLETED, DROPPED, FAILED, REJECTED

Layers = list[tuple[np.ndarray, np.ndarray]]


def layers_of(parameters: Any, member: int | None = None) -> Layers:
    """Kernels [outputs, inputs] and biases of an MLP's parameters, of one member of an ensemble."""
    content = parameters["params"]
    layers = []
    for index in range(len(content)):
        dense = content[f"Dense_{index}"]
        kernel, bias = np.asarray(dense["kernel"]), np.asarray(dense["bias"])
        if member is not None:
            kernel, bias = kernel[member], bias[member]
        layers.append((np.ascontiguousarray(kernel.T), bias))
    return layers


def forward(layers: Layers, inputs: np.ndarray) -> np.ndarray:
    """The MLP with ReLU between its layers."""
    for kernel, bias in layers[:-1]:
        inputs = np.maximum(kernel @ inputs + bias, 0.0)
    kernel, bias = layers[-1]
    return kernel @ inputs + bias


def sampled_choice(logits: np.ndarray, legal: list[bool], uniform: float) -> int:
    """A legal choice by the inverse of the softmax's distribution function."""
    masked = np.where(legal, logits, -np.inf)
    weight = np.exp(masked - masked.max())
    return int(np.searchsorted(np.cumsum(weight), uniform * weight.sum(), side="right"))


def sigmoid(logit: float) -> float:
    """The logistic function."""
    return 1.0 / (1.0 + math.exp(-logit))


def duration_s(
    outputs: np.ndarray,
    uniforms: np.ndarray,
    unit_s: float,
    limit_s: float,
    places: list[float],
    fixed: int = -1,
) -> float:
    """A draw from a mixture of four normals of log1p(duration / unit), given that it is positive."""
    weight, location, log_scale = outputs.reshape(3, 4)
    location = np.where(np.arange(4) == fixed, 0.0, location) + np.array(places)
    scale = np.exp(np.clip(log_scale, -6.0, 2.0))
    positive = np.array([NormalDist().cdf(one) for one in location / scale])
    share = np.exp(weight - weight.max()) * positive
    share /= share.sum()
    component = min(int(np.searchsorted(np.cumsum(share), uniforms[0], side="right")), 3)
    above = float(uniforms[1]) * float(positive[component])
    value = float(location[component]) + float(scale[component]) * -NormalDist().inv_cdf(above)
    return math.expm1(min(max(value, 0.0), math.log1p(limit_s / unit_s))) * unit_s


def pending_inputs(
    tide: float, level: float, crowding: float, stretch: float, availability_s: float, unit_s: float
) -> np.ndarray:
    """The inputs of the ensemble that no policy has."""
    room = math.log1p(availability_s / unit_s), 0.1 * math.log1p(1000.0 * availability_s / unit_s)
    return np.array([2.0 * tide, 4.0 * level, crowding, stretch, *room], np.float32)


def answer(
    outputs: np.ndarray,
    uniforms: np.ndarray,
    clock_s: float,
    availability_s: float,
    acceptance: float,
    usual_run: float,
    unit_s: float,
    limits_s: tuple[float, float],
) -> dict[str, Any]:
    """The fate of one offer, from a member's outputs [28], uniforms [8], the time until the node has room, the usual
    probability of acceptance and log(1 + usual run time in units)."""
    acceptance = min(max(acceptance, 0.005), 0.995)
    usual_logit = math.log(acceptance / (1.0 - acceptance))
    accept = sigmoid(float(outputs[0]) + usual_logit)
    drop, fail, at_once = (sigmoid(float(logit)) for logit in outputs[1:4])
    if uniforms[0] >= accept:
        never = math.inf
        return {"accepted": False, "start_s": never, "finish_s": never, "status": REJECTED}
    wait_s = 0.0
    if uniforms[3] >= at_once:
        room = math.log1p(1000.0 * availability_s / unit_s)
        places = [2.0, 6.0, room, room + 1.0]
        wait_s = duration_s(outputs[4:16], uniforms[4:6], unit_s / 1000.0, limits_s[0], places, fixed=2)
    start_s = clock_s + wait_s
    if uniforms[1] < drop:
        return {"accepted": True, "start_s": math.inf, "finish_s": start_s, "status": DROPPED}
    places = [usual_run - 0.3, usual_run, usual_run + 0.3, 1.0]
    run_s = duration_s(outputs[16:28], uniforms[6:8], unit_s, limits_s[1], places)
    status = FAILED if uniforms[2] < fail else COMPLETED
    return {"accepted": True, "start_s": start_s, "finish_s": start_s + run_s, "status": status}
