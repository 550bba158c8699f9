"""A trained policy of placements as a bundle."""

from pathlib import Path
from typing import Any

from evaluation.comparison.products import trained_in
from evaluation.judges.descriptions import TWIN_POLICY
from logs_schema.product import read_manifest
from offline_rl.export import export_policy, network_facts
from offline_rl.placement_contract import placement_contract
from offline_rl.recipes.schedulers import (
    best_row,
    best_rule,
    load_observed,
    load_schedulers,
    policy_params,
    row_of_seed,
)
from offline_rl.recipes.training_days import load_training_days


def build_bundle(
    out: Path,
    policy_path: Path,
    *,
    policy: str | None = None,
    seed: int | None = None,
    licence: str | None = None,
    replace: bool = False,
) -> dict[str, Any]:
    """Exports a policy as the bundle `out`: the named one, as in comparisons, else the one that training chose.

    Of a policy with seeds it is the given seed, else the best in the twin; a seed without a name selects the policy
    trained in the twin.

    Raises:
        ConfigError: No such policy or seed.
        ProductError: This is no policy, or the exported copies do not decide as it does.
    """
    manifest = read_manifest(policy_path, "policy")
    schedulers, encoding = load_schedulers(policy_path)
    seeds = list(manifest.extra["seeds"])
    if policy is None:
        policy = schedulers.chosen[0] if seed is None else TWIN_POLICY
    row = best_row(schedulers, policy) if seed is None else row_of_seed(schedulers, policy, seed, seeds)
    params = policy_params(schedulers, policy, row)
    days = load_training_days(policy_path)
    contract = placement_contract(
        encoding,
        network_facts(params),
        ranges=None if days is None else (days.low, days.high),
        alarm=None if days is None else days.alarm,
        trained_on=trained_in(manifest),
        certificate=manifest.extra.get("certificate"),
        licence=licence,
    )
    export_policy(
        params,
        out,
        contract,
        observed=load_observed(policy_path),
        made_from={"policy": manifest.content_hash},
        seed=seeds[row],
        extra={
            "train_days": [day.isoformat() for day in encoding.train_days],
            "seed_chosen_by": "value in the twin" if seed is None else "the user",
            "policy": policy,
            "ladder": manifest.extra.get("ladder", "none was climbed"),
        },
        stand_in=best_rule(schedulers),
        replace=replace,
    )
    return {"seed": seeds[row], "policy": policy}
