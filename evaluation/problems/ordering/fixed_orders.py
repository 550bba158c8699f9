"""Orders of a queue without training: published rules, with EASY and without, and the weighted family.

Their names are those of the ladder: `saf+easy`, `saf` without backfilling, `reserved(0.5,0.5,0.06)` (weights of run
time and processors, and ageing; `reserved`: predictions for order and reservations, `predicted`: for the order only,
`requested`: requested run times for both). `easy++` is the member of that family that was published as a rule: first
come, first served, backfilled by users' last two run times, corrected (Tsafrir, Etsion and Feitelson 2007,
"Backfilling using system-generated predictions rather than user runtime estimates").
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from evaluation.problems.ordering.playing import EASY, EASY_PREDICTED, OrderPolicy, rule_policies, rule_policy
from evaluation.problems.ordering.weeks import TestWeek
from logs_schema.errors import ConfigError
from offline_rl.ordering.contract import weighted_setting
from offline_rl.runner.queue_rules import BACKFILLING, BY_PREDICTED_RUN, NUMBERS, SCORES, WEIGHTED
from twin.ordering.predicted import PredictedOrder, last_runs, replay_predicted
from twin.ordering.rules import RULES, Rule
from twin.ordering.types import Pool

OWN_BACKFILL = {rule: backfill for backfill, rule in BACKFILLING.items()}
"""In which jobs are backfilled where a rule orders the queue."""
KINDS = {"reserved": (True, True), "predicted": (True, False), "requested": (False, False)}
"""How run times are known -> whether they are predicted, and whether predictions reserve."""
EASY_PLUS_PLUS = PredictedOrder()
_NUMBER = r"(\d+\.?\d*(?:e-?\d+)?)"
_WEIGHTED = re.compile(rf"(\w+)\({_NUMBER},{_NUMBER},{_NUMBER}\)")


class FixedOrder(NamedTuple):
    """An order that a bundle can hold.

    Attributes:
        name: as the ladder names it.
        rule: a published rule, or a member of the weighted family.
        easy: whether jobs are backfilled.
    """

    name: str
    rule: Rule | PredictedOrder
    easy: bool = True

    def setting(self) -> dict[str, Any]:
        """What a contract's setting holds of it."""
        if isinstance(self.rule, PredictedOrder):
            return weighted_setting(self.rule)
        return {"rule": self.rule.name, "backfill": OWN_BACKFILL[self.rule.name]}

    def policy(self, pool: Pool) -> OrderPolicy:
        """The order as exact replay plays it on a pool."""
        own = Pool(pool.processors, self.easy, pool.name)
        if isinstance(self.rule, PredictedOrder):
            return OrderPolicy(
                self.name, "baseline", words_of(self.rule), (partial(_play_predicted, self.rule, own),)
            )
        return rule_policy(self.rule, own)


def published_policies(pool: Pool) -> list[OrderPolicy]:
    """Every published rule: those by requests, without and with EASY backfilling, and EASY++."""
    return [*rule_policies(pool), fixed_order(EASY_PREDICTED).policy(pool)]


def is_by_predictions(name: str) -> bool:
    """Whether a name is one of the weighted family's."""
    return name == EASY_PREDICTED or "(" in name


def fixed_order(name: str) -> FixedOrder:
    """The order of a name; ConfigError where no bundle can hold it."""
    if name == EASY_PREDICTED:
        return FixedOrder(name, EASY_PLUS_PLUS)
    plain = name.removesuffix(EASY)
    rule = next((one for one in RULES if one.name == plain and one.name in SCORES), None)
    if rule is not None:
        return FixedOrder(name, rule, name.endswith(EASY))
    found = _WEIGHTED.fullmatch(name)
    if found is None or found[1] not in KINDS:
        raise ConfigError(
            f"{name!r} is no rule that a bundle can hold",
            where="--rule",
            allowed=f"{', '.join(SCORES)}, {EASY_PREDICTED}; or {', '.join(KINDS)} with three numbers: "
            "predicted(0.5,0.5,0.06)",
            advice="choose one of these",
        )
    run_weight, width_weight, ageing = map(float, found.groups()[1:])
    return FixedOrder(name, PredictedOrder(run_weight, width_weight, ageing, *KINDS[found[1]]))


def order_of_setting(setting: Mapping[str, Any]) -> FixedOrder:
    """The order of a contract's setting (see `FixedOrder.setting`)."""
    easy = bool(setting["easy"])
    if setting["rule"] != WEIGHTED:
        return fixed_order(f"{setting['rule']}{EASY if easy else ''}")
    run_weight, width_weight, ageing = (float(setting["numbers"][name]) for name in NUMBERS)
    short_first = setting["backfill"] == BY_PREDICTED_RUN
    known = bool(setting["predicts"]), bool(setting["reserves"])
    order = PredictedOrder(run_weight, width_weight, ageing, *known, short_first)
    return FixedOrder(name_of(order), order, easy)


def name_of(order: PredictedOrder) -> str:
    """A member's name, from its numbers."""
    if order == EASY_PLUS_PLUS:
        return EASY_PREDICTED
    kind = next(kind for kind, known in KINDS.items() if known == (order.predicts, order.reserves))
    return f"{kind}({order.run_weight:g},{order.width_weight:g},{order.ageing:g})"


def words_of(order: PredictedOrder) -> str:
    """A member's formula."""
    if order == EASY_PLUS_PLUS:
        return "first come, first served; EASY, shortest prediction first, by users' last two run times, corrected"
    return (
        f"{order.run_weight:g} ln({'predicted' if order.predicts else 'requested'} run) + {order.width_weight:g} "
        f"ln(processors) - {order.ageing:g} a day waited, lowest first; EASY, shortest run first"
    )


def play_predicted(order: PredictedOrder, pool: Pool, week: TestWeek) -> np.ndarray:
    """The exact replay under predicted run times, with the users' history at the beginning of the week."""
    past = last_runs(week.whole, week.schedule_s, week.span_s[0])
    return replay_predicted(week.jobs, pool, order, past=past, warm=week.warm).start_s


def _play_predicted(order: PredictedOrder, pool: Pool, weeks: Sequence[TestWeek]) -> list[np.ndarray]:
    return [play_predicted(order, pool, week) for week in weeks]
