"""What the command line may say of a problem and of an export, apart from the kits, which import far more."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class ProblemOptions:
    """The problem of a log; None where the log or the configuration decides.

    Attributes:
        problem: placement (which node takes a request), ordering (which waiting job of a batch queue starts next),
            autoscaling (the resources granted to deployments of an application), orchestration (dispatch by slots,
            replicas by frames), assignment (which edge takes each of many requests at once) or another that has a kit
            (see evaluation/problems; default: that of the configuration's table [order], [scale], [orchestration] or
            [assign]; else ordering where the archive has one pool only, autoscaling where it has deployment_samples
            only, else placement).
        processors: Of the ordering problem: size of the pool (default: the archive's nodes).
        pool: Of the ordering problem: class of the queue's nodes, where the archive has several.
    """

    problem: str | None = None
    processors: float | None = None
    pool: str | None = None


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        policy: Name of the policy as in comparisons: of placement twin, bc_greedy, expected_on_time, ...; of an
            application teacher, teacher_lookahead, students, students_discrete, students_lookahead; of many requests at
            once network, insertion_local_search (default: the one that training chose; of an application the best in
            the twin).
        seed: Seed of the policy (default: the best in the twin); without --policy of the policy twin.
        rule: Of a queue: a published rule for the same pool in place of the policy.
        comparison: Of a queue: result of schedtwin compare; the index is exported where it is better there than what
            the ladder of the training chose.
        licence: Licence of the bundle, for its contract.
        replace: Replace a bundle that is already there.
    """

    policy: str | None = None
    seed: int | None = None
    rule: str | None = None
    comparison: Path | None = field(default=None, metadata={"metavar": "COMPARISON"})
    licence: str | None = field(default=None, metadata={"metavar": "TEXT"})
    replace: bool = False
