"""Judging: time-shifted days, metrics, baselines, the ground truth, reports and the command line."""

from typing import TYPE_CHECKING

from logs_schema.lazy import at_first_use
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

__getattr__ = at_first_use(
    __name__,
    {
        "api": ("Compared", "Split", "compare", "shifted_days"),
        "certify.config": ("CertifyConfig",),
        "commands.cli": ("main",),
        "comparison.unit_values": ("UnitValues",),
        "judges.config": ("JudgeConfig",),
        "judges.slot_policies": ("SlotPolicies",),
        "judges.user_judges": ("JudgedDays", "UserJudge"),
        "problems.kits": ("add_problem",),
        "problems.placement.validating": ("Certified", "validate"),
        "simulator.logs": ("simulate",),
    },
)
