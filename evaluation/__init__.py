"""Judging: time-shifted days, metrics, baselines, the ground truth, reports and the command line."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from twin.backend import prepare

if TYPE_CHECKING:
    from evaluation.api import Compared, Split, compare, shifted_days
    from evaluation.certify.config import CertifyConfig
    from evaluation.commands.cli import main
    from evaluation.comparison.unit_values import UnitValues
    from evaluation.judges.config import JudgeConfig
    from evaluation.judges.slot_policies import SlotPolicies
    from evaluation.judges.user_judges import JudgedDays, UserJudge
    from evaluation.problems.kits import add_problem
    from evaluation.problems.placement.validating import Certified, validate
    from evaluation.simulator.logs import simulate

prepare()  # here, because modules of this package import JAX before they import the twin

__all__ = [
    "Certified",
    "CertifyConfig",
    "Compared",
    "JudgeConfig",
    "JudgedDays",
    "SlotPolicies",
    "Split",
    "UnitValues",
    "UserJudge",
    "add_problem",
    "compare",
    "main",
    "shifted_days",
    "simulate",
    "validate",
]

_HOMES = {
    "Certified": "problems.placement.validating",
    "CertifyConfig": "certify.config",
    "JudgeConfig": "judges.config",
    "JudgedDays": "judges.user_judges",
    "SlotPolicies": "judges.slot_policies",
    "UnitValues": "comparison.unit_values",
    "UserJudge": "judges.user_judges",
    "add_problem": "problems.kits",
    "main": "commands.cli",
    "simulate": "simulator.logs",
    "validate": "problems.placement.validating",
}
"""Module that defines a name; the others are defined in `evaluation.api`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'api')}"), name)
