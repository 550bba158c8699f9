"""`schedtwin fleet`: the daily jobs of many clusters, their state, and what of them may go."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.commands.actions import Action, add_actions
from evaluation.commands.engine_arguments import add_engine_arguments, engine_from

if TYPE_CHECKING:
    from evaluation.pipeline.fleet.config import Fleet, FleetCluster
    from evaluation.pipeline.fleet.pruning import PrunePlan
    from evaluation.pipeline.fleet.refreshing import Refreshed
    from evaluation.pipeline.fleet.states import FleetState

NAME = "fleet"
HELP = (
    "many clusters' twins as a service: refresh those that are due, show their state, remove old products; exit "
    "status: the worst of 0: exported, or nothing due, 10: kept the running policy, 12: certificate cannot tell, 11: "
    "certificate failed, 13: a refresh is overdue, 2: error, 1: unexpected error"
)


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the actions and their arguments."""
    add_actions(parser, "actions", "ACTION", ACTIONS)


def _add_clusters(parser: ArgumentParser) -> None:
    parser.add_argument(
        "config", metavar="FLEET.toml", type=Path, help="the clusters: see evaluation/README.md"
    )
    parser.add_argument(
        "--cluster", metavar="NAME", action="append", default=[], help="of this cluster only; may be repeated"
    )


def _add_refresh(parser: ArgumentParser) -> None:
    _add_clusters(parser)
    parser.add_argument(
        "--now", action="store_true", help="also the clusters that are not due; with --cluster, these only"
    )
    add_engine_arguments(parser)


def _add_prune(parser: ArgumentParser) -> None:
    _add_clusters(parser)
    parser.add_argument("--apply", action="store_true", help="remove them; without it nothing is changed")
    parser.add_argument("--all", action="store_true", help="show also what stays, and why")


def run(arguments: Namespace) -> int:
    """Refresh, show or prune; the worst exit status of the clusters (of prune: 0)."""
    from evaluation.pipeline.fleet.config import load_fleet

    fleet = load_fleet(arguments.config)
    return int(arguments.action.run(arguments, fleet, fleet.chosen(arguments.cluster)))


def _refresh(arguments: Namespace, fleet: "Fleet", clusters: "Sequence[FleetCluster]") -> int:
    from dataclasses import replace

    from evaluation.commands.output import progress_of, show_result
    from evaluation.pipeline.fleet.outcomes import DONE, USER_ERROR, worst
    from evaluation.pipeline.fleet.refreshing import refresh_fleet
    from logs_schema.records import to_plain

    engine = engine_from(arguments, fleet.settings.engine)
    fleet = replace(fleet, settings=replace(fleet.settings, engine=engine))
    _wrote_state(fleet)
    try:
        with progress_of(arguments) as progress:
            found = refresh_fleet(fleet, clusters, progress, at_once=arguments.now)
    finally:
        is_written = _wrote_state(fleet)
    statuses = [one.outcome.status for one in found if one.outcome is not None]
    status = worst([*statuses, DONE if is_written else USER_ERROR])
    result = {"exit_status": status, "clusters": to_plain(found)}
    show_result(arguments, result, _refreshed_in_words(found))
    return status


def _status(arguments: Namespace, fleet: "Fleet", clusters: "Sequence[FleetCluster]") -> int:
    from evaluation.commands.output import show_result
    from evaluation.pipeline.fleet.showing import as_text
    from evaluation.pipeline.fleet.states import state_of, to_json

    whole = write_state(fleet)
    state = whole if len(clusters) == len(fleet.clusters) else state_of(clusters)
    show_result(arguments, to_json(state), as_text(state))
    return state.exit_status


def write_state(fleet: "Fleet") -> "FleetState":
    """Writes the page and the metrics of the whole fleet, whose state is returned."""
    from evaluation.pipeline.fleet.metrics import write_metrics
    from evaluation.pipeline.fleet.showing import write_page
    from evaluation.pipeline.fleet.states import state_of

    state = state_of(fleet.clusters)
    try:
        write_page(state, fleet.page)
    finally:
        write_metrics(state, fleet.metrics)
    return state


def _wrote_state(fleet: "Fleet") -> bool:
    """Whether page and metrics are written; where they are not it is said, and refreshes go on all the same."""
    try:
        write_state(fleet)
    except OSError as error:
        print(f"schedtwin fleet: page or metrics cannot be written: {error}", file=sys.stderr, flush=True)
        return False
    return True


def _prune(arguments: Namespace, fleet: "Fleet", clusters: "Sequence[FleetCluster]") -> int:
    from evaluation.commands.output import show_result
    from evaluation.pipeline.fleet.pruning import prune

    plans = prune(fleet, clusters, apply=arguments.apply)
    show_result(arguments, _plans_json(plans, arguments.apply), _plans_text(plans, arguments))
    return 0


def _refreshed_in_words(found: "Sequence[Refreshed]") -> str:
    lines = []
    for one in found:
        if one.outcome is None:
            lines.append(f"{one.name}: not refreshed, {one.skipped.value if one.skipped is not None else ''}")
        else:
            lines.append(f"{one.name}: {one.outcome.result}: {one.outcome.reason}")
    return "\n".join(lines)


def _plans_json(plans: "Sequence[PrunePlan]", applied: bool) -> dict[str, Any]:
    clusters = [
        {
            "name": plan.cluster,
            "busy": plan.busy,
            "bytes_freed": plan.bytes_freed,
            "entries": [
                {"path": str(one.path), "goes": one.goes, "why": one.why, "bytes_freed": one.bytes_freed}
                for one in plan.fates
            ],
        }
        for plan in plans
    ]
    return {"applied": applied, "bytes_freed": sum(plan.bytes_freed for plan in plans), "clusters": clusters}


def _plans_text(plans: "Sequence[PrunePlan]", arguments: Namespace) -> str:
    from evaluation.pipeline.fleet.showing import as_table
    from logs_schema.disk import in_mib

    goes = "removed" if arguments.apply else "would go"
    lines = [
        (
            plan.cluster,
            goes if one.goes else "stays" if one.is_product else "",
            str(one.path),
            in_mib(one.bytes_freed) if one.goes else "",
            one.why,
        )
        for plan in plans
        for one in plan.fates
        if one.goes or not one.is_product or arguments.all
    ]
    text = [as_table(("cluster", "", "what", "frees", "why"), lines)] if lines else []
    text += [
        f"{plan.cluster}: a job is at work in its folder, nothing was removed" for plan in plans if plan.busy
    ]
    num = sum(one.goes for plan in plans for one in plan.fates)
    total = in_mib(sum(plan.bytes_freed for plan in plans))
    did = (
        f"{num} removed, {total} freed"
        if arguments.apply
        else f"{num} would go and free {total}; --apply removes them"
    )
    return "\n".join([*text, did if num else "nothing to remove"])


ACTIONS = (
    Action(
        "refresh",
        "refresh the clusters that are due, each as schedtwin refresh does; write page and metrics",
        _add_refresh,
        _refresh,
    ),
    Action("status", "show the state of every cluster; write page and metrics", _add_clusters, _status),
    Action(
        "prune",
        "show which old products would go and why the others stay; remove them with --apply",
        _add_prune,
        _prune,
    ),
)
