"""Configuration of the judges of placement."""

from dataclasses import dataclass

from evaluation.baselines import BASELINES, COMPARED, TRUTH_BASELINES, Baseline, TruthBaseline
from logs_schema.errors import ConfigError
from logs_schema.settings import refuse_below_one, refuse_wrong_types


@dataclass(frozen=True)
class JudgeConfig:
    """Configuration of the judges.

    Attributes:
        copies: Replications of every test window in a twin; a multiple of the ensemble's members.
        num_steps: Longest stretch of requests judged in one piece; longer days are cut, each piece starting from
            the logged state.
        num_fit_steps: Gradient steps of the twins of shifted days; 0 leaves that judge out.
        off_policy_updates: Gradient steps of the fitted off-policy estimates; 0 leaves those estimates out.
        num_true_days: Replications of a day in the simulated truth, for logs of the ground truth.
        baselines: Names of the published rules to compare with; those that read the simulated world's tables act in
            the truth alone.
        seed: Seed of the judges.
    """

    copies: int = 10
    num_steps: int = 512
    num_fit_steps: int = 600
    off_policy_updates: int = 1000
    num_true_days: int = 16
    baselines: tuple[str, ...] = tuple(one.name for one in (*COMPARED, *TRUTH_BASELINES))
    seed: int = 0

    def __post_init__(self) -> None:
        refuse_wrong_types(self, "[judge]")
        known = [one.name for one in (*BASELINES, *TRUTH_BASELINES)]
        if unknown := [name for name in self.baselines if name not in known]:
            raise ConfigError(
                f"no baseline {', '.join(unknown)}", where="[judge] baselines", allowed=", ".join(known)
            )
        for name in ("num_fit_steps", "off_policy_updates"):
            if (value := getattr(self, name)) < 0:
                raise ConfigError(f"{name} = {value}", where="[judge]", allowed="0 or more")
        refuse_below_one(
            "[judge]", copies=self.copies, num_steps=self.num_steps, num_true_days=self.num_true_days
        )

    def compared(self) -> tuple[Baseline, ...]:
        """The baselines that need the cluster only."""
        return tuple(one for one in BASELINES if one.name in self.baselines)

    def compared_in_truth(self) -> tuple[TruthBaseline, ...]:
        """The baselines that read the tables of the simulated world."""
        return tuple(one for one in TRUTH_BASELINES if one.name in self.baselines)
