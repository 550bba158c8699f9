"""Which pairs of dispatcher and orchestrator KaiS and KMPS are compared by, and what the papers call them."""

from collections.abc import Collection, Sequence
from typing import Any

from evaluation.problems.orchestration.bench import Pair
from evaluation.problems.orchestration.references import LOOKAHEAD, PLANNED, PLANNED_TUNED
from evaluation.problems.orchestration.rivals import CENTRAL_RULE
from logs_schema.errors import ConfigError
from offline_rl.contract import EXPECTED_ON_TIME
from offline_rl.recipes.slot_learners import dispatchers, orchestrators, trained_together

BASELINE_PAIRS = (
    Pair("random", "static"), Pair("least_loaded", "static"), Pair("gsp_ss", "static"), Pair("firmament", "static"),
    Pair("k8s_default", "static"), Pair("k8s_default", "hpa"), Pair("least_loaded", "random_scaling"),
    Pair("least_loaded", "hpa"), Pair("firmament", "hpa"), Pair("least_loaded", "hpa_requests"),
    Pair("least_loaded", "greedy_scaling"),
)  # fmt: skip
"""The papers' baselines without learning."""
CENTRAL_AT_ONCE = "expected_on_time_central_at_once"
"""`CENTRAL_RULE` whose decisions do not come late: what that costs."""
RIVAL_PAIRS = (
    Pair(EXPECTED_ON_TIME, "static"),
    Pair(EXPECTED_ON_TIME, PLANNED),
    Pair(CENTRAL_AT_ONCE, PLANNED),
    Pair(CENTRAL_RULE, PLANNED),
    Pair("firmament_central", "static"),
    Pair(EXPECTED_ON_TIME, LOOKAHEAD),
    Pair("least_loaded", PLANNED),
    Pair("least_loaded", LOOKAHEAD),
)
"""What the papers lack: the strongest rule from logs, and orchestrators that plan with the log's tables or the twin."""
QUICK_PAIRS = (*BASELINE_PAIRS, *RIVAL_PAIRS[:6])
"""Every lookahead is a simulator more to compile, so the quick form keeps one."""
GPG_TUNED = "gpg_tuned"
"""GPG that corrects the tuned plan."""
LEARNED_PAIRS = (
    *(Pair(name, PLANNED) for name in dispatchers()),
    *(Pair(EXPECTED_ON_TIME, name) for name in orchestrators()),
    Pair(EXPECTED_ON_TIME, PLANNED_TUNED),
    Pair(CENTRAL_RULE, PLANNED_TUNED),
    Pair("least_loaded", PLANNED_TUNED),
    Pair(EXPECTED_ON_TIME, GPG_TUNED),
    Pair("residual", "gpg"),
    Pair("least_loaded", "gpg"),
    Pair("cmmac", "hpa"),
    Pair("cmmac", "gpg"),
    Pair("mappo", "gpo"),
    Pair("mappo", "gpo_without_gnn"),
    Pair("mappo", "gpo_single_critic"),
    *(Pair(name, name) for name in trained_together()),
)
"""Pairs of which a side is trained, alone beside a rule, beside another that is trained, or together with it."""
NAMES = {
    Pair("k8s_default", "static"): "static",
    Pair("least_loaded", "static"): "greedy",
    Pair("k8s_default", "hpa"): "native",
    Pair("gsp_ss", "static"): "gsp_ss",
    Pair("firmament", "static"): "firmament",
    Pair("least_loaded", "hpa"): "greedy_native",
    Pair("firmament", "hpa"): "firmament_native",
    Pair("least_loaded", "gpg"): "greedy_gpg",
    Pair("cmmac", "hpa"): "cmmac_native",
    Pair("cmmac", "gpg"): "kais",
    Pair("mappo", "gpo"): "kmps",
    Pair("mappo", "gpo_without_gnn"): "kmps_without_gnn",
    Pair("mappo", "gpo_single_critic"): "single_actor_critic",
    Pair(EXPECTED_ON_TIME, PLANNED): "expected_on_time",
    Pair(EXPECTED_ON_TIME, LOOKAHEAD): "lookahead",
}
"""What the papers call a pair, and the strongest rivals' short names."""


def name_of(pair: Pair) -> str:
    """A row's name: the papers', or both sides', or that of both where they were trained together."""
    both = "_and_".join(dict.fromkeys(pair))
    return NAMES.get(pair, both)


def pairs_named(names: Sequence[str], pairs: Collection[Pair]) -> tuple[Pair, ...]:
    """Those of some pairs whose rows have these names; ConfigError where there is none of a name."""
    named = {name_of(pair): pair for pair in pairs}
    for name in names:
        if name not in named:
            raise ConfigError(
                f"there is no row {name!r}", where="reproduce --untrained", allowed=", ".join(named)
            )
    return tuple(named[name] for name in names)


APART = {name: name_of(Pair(*sides)) for name, (sides, _) in trained_together().items()}
"""Name of a pair that was trained together -> that of the same learners apart."""


def trained_sides(pair: Pair) -> tuple[str, ...]:
    """Those sides of a pair that are trained."""
    trained = {*dispatchers(), *orchestrators(), *trained_together(), PLANNED_TUNED, GPG_TUNED}
    return tuple(side for side in dict.fromkeys(pair) if side in trained)


def pairs_of(learners: Collection[str]) -> tuple[Pair, ...]:
    """The learned pairs of which every trained side is among some learners."""
    return tuple(pair for pair in LEARNED_PAIRS if set(trained_sides(pair)) <= set(learners))


def absent(rows: Collection[dict[str, Any]]) -> list[dict[str, str]]:
    """The named pairs without a row, and why there is none."""
    shown = {row["name"] for row in rows}
    return [{"name": name, "reason": _reason(pair)} for pair, name in NAMES.items() if name not in shown]


def _reason(pair: Pair) -> str:
    sides = trained_sides(pair)
    if sides:
        return f"not trained in this run: --learned {','.join(sides)}"
    return "not among the pairs of this run"
