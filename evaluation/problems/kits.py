"""Every problem's kit; a new problem is a folder with a kit and a line here."""

from pathlib import Path

from evaluation.problems.assignment.kit import ASSIGNMENT_KIT
from evaluation.problems.autoscaling.kit import AUTOSCALING_KIT
from evaluation.problems.configuration import RunConfig
from evaluation.problems.kit import Kit, ProblemOptions
from evaluation.problems.orchestration.kit import ORCHESTRATION_KIT
from evaluation.problems.ordering.kit import ORDERING_KIT
from evaluation.problems.placement.kit import PLACEMENT_KIT
from logs_schema import Archive
from logs_schema.errors import ConfigError, ProductError
from logs_schema.options import refuse_type
from logs_schema.product import read_manifest
from twin.problems import problem_of

KITS: tuple[Kit, ...] = (PLACEMENT_KIT, ORDERING_KIT, AUTOSCALING_KIT, ORCHESTRATION_KIT, ASSIGNMENT_KIT)
"""Without further options, a log is of the first problem that its archive supports."""


def add_problem(kit: Kit) -> None:
    """Registers a problem in this process, in place of one of the same name: for own problems, notebooks and tests."""
    refuse_type("kit", kit, Kit, "add_problem", "see evaluation/problems/kit.py")
    global KITS
    KITS = (*(one for one in KITS if one.name != kit.name), kit)


def find_kit(name: str) -> Kit:
    """The kit of a problem.

    Raises:
        ConfigError: There is no such problem.
    """
    kit = _known(name)
    if kit is None:
        raise ConfigError(
            f"there is no problem {name!r}",
            allowed="; ".join(f"{one.name}: {one.decides}" for one in KITS),
            advice="name one of these; a problem is added by a folder with a kit, and a line in "
            "evaluation/problems/kits.py or add_problem(kit)",
        )
    return kit


def kit_of(product: Path) -> Kit:
    """The kit of the problem that a twin or a policy is of.

    Raises:
        ProductError: There is no product, or one of an unknown problem.
    """
    name = problem_of(product)
    kit = _known(name)
    if kit is None:
        raise ProductError(
            f"this {read_manifest(product).kind} is of the unknown problem {name!r}",
            where=str(product),
            allowed=", ".join(one.name for one in KITS),
            advice="make it again with this version, or add the problem's kit to evaluation/problems/kits.py",
        )
    return kit


def claiming_kit(config: RunConfig) -> Kit:
    """The kit of the problem that a job's configuration selects; the first one's where it selects none."""
    return next((one for one in KITS if one.claims(config)), KITS[0])


def kit_of_twin(twin: object) -> Kit:
    """The kit of the problem that a twin in Python is of; ConfigError where it is of none."""
    for kit in KITS:
        if kit.twin is not None and isinstance(twin, kit.twin):
            return kit
    raise ConfigError(
        f"policies of a {type(twin).__name__} cannot be compared from Python",
        allowed=", ".join(kit.twin.__name__ for kit in KITS if kit.twin is not None),
        advice="fit one with twin.fit, or give the problem's kit a `twin` and a `judge`",
    )


def _known(name: str) -> Kit | None:
    return next((kit for kit in KITS if kit.name == name), None)


def choose_kit(config: RunConfig, archive: Path, options: ProblemOptions) -> tuple[Kit, RunConfig, str]:
    """Chooses the problem of an archive's log: the named one, else the first that the log supports.

    Args:
        config: A table of a problem's own, such as [order], selects that problem.
        archive: Used where neither the command line nor the configuration names a problem.
        options: Of the command line.

    Returns:
        The kit, the configuration with the options, and a note on the choice, which may be empty.

    Raises:
        ConfigError: The options contradict the problem, or the log supports none.
    """
    kit, note = find_kit(options.problem) if options.problem is not None else None, ""
    if kit is not None and kit.refuses_lacking and (reason := kit.lacking(Archive(archive))):
        raise ConfigError(
            f"the log does not support the problem '{kit.name}': {reason}",
            where=str(archive),
            allowed=f"{kit.name} needs {kit.needs}",
            advice=_instead(Archive(archive)),
        )
    if kit is None:
        kit = next((one for one in KITS if one.claims(config)), None)
    if kit is None:
        log, reasons = Archive(archive), []
        for one in KITS:
            if not (reason := one.lacking(log)):
                kit = one
                break
            reasons.append(reason)
        if kit is None:
            raise ConfigError(
                "this log supports no problem",
                where=f"{archive}: {'; '.join(reasons)}",
                allowed="; ".join(f"{one.name} needs {one.needs}" for one in KITS),
                advice=f"schedtwin check {archive} lists the contents of the log",
            )
        note = f"{reasons[-1]}, so this is of the problem {kit.name} ({kit.decides})" if reasons else ""
    return kit, kit.configured(config, options), note


def _instead(archive: Archive) -> str:
    """What to do with a log that does not support the problem asked for."""
    if archive.num_rows("requests") and not archive.nodes().num_rows:
        return (
            "the archive lists no nodes: import the log together with them (as nodes.csv); without them it supports "
            "ordering alone, of a queue whose size is given with --processors"
        )
    supported = [one.name for one in KITS if not one.lacking(archive)]
    return f"the log supports {', '.join(supported) or 'no problem'}; schedtwin check {archive.path} says why"
