"""The rules of `offline_rl.rules` in NumPy, from named numbers; what a bundle of a rule decides with.

    delay    = max(queue, latency + per_mib * input)
    queue    = wait_scale * backlog where a node is short of cores, behind_scale * backlog where others go first
    run      = usual run * exp(crowding_0 * ln(1 + running) + crowding_1 * ln max(1, load) - crowding_2)
    expected_on_time         acceptance * Phi(ln((deadline - delay) / run) / spread)
                             - price * ln(1 + core time) * (1 + busy)
                             - toll * ln(1 + running) * ln(1 + usual run) - haste * ln(1 + delay + run)
    least_expected_response  ln(acceptance) - ln(delay + run) - price * ln(1 + core time) * (1 + busy)
                             - toll * ln(1 + running) * ln(1 + usual run)
    on_time_by_replicas      see `offline_rl.rules.on_time_by_replicas`

Durations are in the time units of the contract's setting; features are read by the contract's names.
"""

from collections.abc import Callable, Mapping
from math import erf, sqrt
from typing import NamedTuple

import numpy as np

from logs_schema.errors import ProductError
from offline_rl.contract import (
    EXPECTED_ON_TIME,
    LEAST_EXPECTED_RESPONSE,
    ON_TIME_BY_REPLICAS,
    RULES,
    FeatureFacts,
    PolicyContract,
)
from offline_rl.replica_scores import TINY, replica_scores, share_on_time

KINDS_OF_OFFER = 3
"""At home, at another site, in the cloud."""
OF_CHOICE = (
    "same_site", "is_cloud", "free_cpu_cores", "free_gpus", "needed_share", "waiting_share", "num_running",
    "num_waiting", "backlog", "usual_run", "core_time", "acceptance",
)  # fmt: skip
OF_CONTEXT = ("deadline", "has_deadline", "input", "asked_gpus")
"""Features that a rule reads, of a node and of the request."""
BY_REPLICAS = (
    "same_site", "is_cloud", "free_cpu_cores", "needed_share", "waiting_share", "backlog", "usual_run", "core_time",
    "replicas", "same_service",
), ("deadline", "has_deadline", "waited")  # fmt: skip
"""Those that the rule of slot mode reads."""
LEAST_ACCEPTANCE = 1e-3
"""A refusal is another try, at most a thousand of them."""
CROWDING, BEHIND_SCALE, PRICE, TOLL = "crowding", "behind_scale", "price", "toll"
LATER_NUMBERS: Mapping[str, tuple[str, ...]] = {
    EXPECTED_ON_TIME: (CROWDING, BEHIND_SCALE, TOLL),
    LEAST_EXPECTED_RESPONSE: (CROWDING, BEHIND_SCALE, PRICE, TOLL),
}
"""Numbers that earlier bundles of a rule do not have: zeros there."""
_DELAY = {"latency": (KINDS_OF_OFFER,), "per_mib": (KINDS_OF_OFFER,), "wait_scale": (), BEHIND_SCALE: ()}
_COMMON = {**_DELAY, CROWDING: (3,), PRICE: (), TOLL: ()}
NUMBERS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    EXPECTED_ON_TIME: {**_COMMON, "spread": (), "haste": ()},
    LEAST_EXPECTED_RESPONSE: _COMMON,
    ON_TIME_BY_REPLICAS: {"latency": (KINDS_OF_OFFER,), "spread": (), "price": (), "haste": ()},
}
"""Rule -> name of every number -> its shape."""

MEANINGS: Mapping[str, str] = {
    "latency": "time units that a transfer takes at least: at home, at another site, in the cloud",
    "per_mib": "time units for every MiB of input, likewise",
    "wait_scale": "time waited for each time unit of backlog, where a node is short of cores",
    BEHIND_SCALE: "the same where cores are free, but others wait or a GPU is asked for and none is free",
    CROWDING: "how runs lengthen beside others: powers of 1 + running and of the load above 1, and the usual",
    "spread": "standard deviation of the logarithm of run times about the usual",
    PRICE: "worth of cores kept free, for every unit of ln(1 + core time) on an idle node; double on a full one",
    TOLL: "what it costs those that run there, for every unit of ln(1 + running) * ln(1 + run)",
    "haste": "worth of an earlier end between offers equally sure, for every unit of ln(1 + response)",
}
"""Number -> its meaning."""

Numbers = Mapping[str, np.ndarray]


class FeatureRows(NamedTuple):
    """Where a rule finds its features: name -> row, of a choice and of the context."""

    of_choice: Mapping[str, int]
    of_context: Mapping[str, int]


def rule_of(contract: PolicyContract) -> str | None:
    """The rule that a contract's network is or corrects; None where there is none."""
    return contract.network.kind if contract.network.kind in RULES else contract.network.corrects


def standing_in(contract: PolicyContract) -> str | None:
    """The rule that decides where a contract's network does not answer: its own, or the one beside it; or None."""
    return rule_of(contract) or contract.network.stand_in


def rows_of(contract: PolicyContract) -> FeatureRows:
    """The places of a rule's features in a contract; ProductError where one is missing."""

    def places(facts: tuple[FeatureFacts, ...], wanted: tuple[str, ...]) -> dict[str, int]:
        names = [one.name for one in facts]
        missing = [name for name in wanted if name not in names]
        if missing:
            raise ProductError(
                f"the rule '{rule_of(contract)}' cannot be decided by these features",
                where=f"missing: {', '.join(missing)}",
                allowed=", ".join(wanted),
            )
        return {name: names.index(name) for name in wanted}

    of_choice, of_context = (
        BY_REPLICAS if rule_of(contract) == ON_TIME_BY_REPLICAS else (OF_CHOICE, OF_CONTEXT)
    )
    return FeatureRows(
        places(contract.choice_features, of_choice), places(contract.context_features, of_context)
    )


def numpy_scores(contract: PolicyContract, arrays: Numbers) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """(choices [batch, A, F], context [batch, R]) -> scores [batch, A] float32 of the contract's rule.

    Args:
        contract: Its features and rule.
        arrays: `<rule>/<number>`.
    """
    rule, rows = rule_of(contract) or "", rows_of(contract)
    numbers = {name: arrays[f"{rule}/{name}"] for name in NUMBERS[rule]}

    def scores(choices: np.ndarray, context: np.ndarray) -> np.ndarray:
        seen = {name: choices[..., row] for name, row in rows.of_choice.items()}
        of_request = {name: context[:, row, None] for name, row in rows.of_context.items()}
        if rule == ON_TIME_BY_REPLICAS:
            return np.asarray(replica_scores(np, _normal_cdf, numbers, seen, of_request), np.float32)
        delay, run = _delay(numbers, seen, of_request), _run(numbers, seen)
        core_time = np.log1p(_duration(seen["core_time"]))
        cost = numbers[PRICE] * core_time * (2.0 - seen["free_cpu_cores"])
        cost = cost + numbers[TOLL] * seen["num_running"] * np.log1p(_duration(seen["usual_run"]))
        if rule == LEAST_EXPECTED_RESPONSE:
            accepted = np.log(np.maximum(seen["acceptance"], np.float32(LEAST_ACCEPTANCE)))
            response = np.log(np.maximum(delay + run, np.float32(TINY)))
            return np.asarray(accepted - response - cost, np.float32)
        left = _duration(of_request["deadline"]) - delay
        on_time = share_on_time(np, _normal_cdf, left, run, numbers["spread"])
        on_time = np.where(of_request["has_deadline"] > 0.5, on_time, np.float32(1.0))
        found = seen["acceptance"] * on_time - cost - numbers["haste"] * np.log1p(delay + run)
        return np.asarray(found, np.float32)

    return scores


def _kind(seen: Mapping[str, np.ndarray]) -> np.ndarray:
    """[batch, A] at home, at another site, in the cloud."""
    return np.where(seen["same_site"] > 0.5, 0, np.where(seen["is_cloud"] > 0.5, 2, 1))


def _has_room(seen: Mapping[str, np.ndarray]) -> np.ndarray:
    """[batch, A] bool: cores for the request are free and no request waits for them."""
    return np.asarray(_free_capacity(seen) >= seen["needed_share"] - np.float32(1e-3))


def _free_capacity(seen: Mapping[str, np.ndarray]) -> np.ndarray:
    """[batch, A] share of the cores that is free and that no request waits for; negative where more wait."""
    return np.asarray(seen["free_cpu_cores"] - np.expm1(seen["waiting_share"]))


def _duration(feature: np.ndarray) -> np.ndarray:
    return np.maximum(np.expm1(feature), np.float32(0.0))


def _delay(
    numbers: Numbers, seen: Mapping[str, np.ndarray], of_request: Mapping[str, np.ndarray]
) -> np.ndarray:
    """[batch, A] time from the offer to the start."""
    no_gpu = (of_request["asked_gpus"] > 0.0) & (seen["free_gpus"] < np.float32(1e-3))
    is_behind = no_gpu | (seen["num_waiting"] > 0.0)
    free_cores_scale = np.where(is_behind, numbers[BEHIND_SCALE], np.float32(0.0))
    queue = np.where(_has_room(seen), free_cores_scale, numbers["wait_scale"]) * _duration(seen["backlog"])
    kind = _kind(seen)
    transfer = numbers["latency"][kind] + numbers["per_mib"][kind] * _duration(of_request["input"])
    return np.asarray(np.maximum(queue, transfer))


def _run(numbers: Numbers, seen: Mapping[str, np.ndarray]) -> np.ndarray:
    """[batch, A] how long the request should run, beside those that run there now."""
    by_count, by_load, usual = numbers[CROWDING]
    load = np.float32(1.0) - _free_capacity(seen) + seen["needed_share"]
    longer = by_count * seen["num_running"] + by_load * np.log(np.maximum(load, np.float32(1.0))) - usual
    return np.asarray(_duration(seen["usual_run"]) * np.exp(longer))


def _normal_cdf(deviations: np.ndarray) -> np.ndarray:
    ends = map(erf, (deviations / np.float32(sqrt(2.0))).ravel().tolist())
    return 0.5 + 0.5 * np.fromiter(ends, np.float32, deviations.size).reshape(deviations.shape)
