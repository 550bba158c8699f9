"""`schedtwin autoscale`: an exported autoscaler beside an application; recommends, or with `--apply` scales."""

import json
import os
import socket
import sys
import threading
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.commands.common_arguments import add_inputs
from evaluation.commands.expecting import add_expected
from evaluation.commands.options import add_options, given
from evaluation.commands.stopping import stop_signals

if TYPE_CHECKING:
    from offline_rl.kube_controller.leading import Leading
    from offline_rl.serving.scaling_controller import Controller

NAME = "autoscale"
NOT_KNOWN = "what is granted is not known"
HELP = "decide what deployments are granted from live metrics: recommend, or scale those that are named"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from offline_rl.serving.prometheus import Prometheus
    from offline_rl.serving.scaling_guard import GuardConfig

    add_inputs(parser, "bundle")
    parser.add_argument("--prometheus", metavar="URL", required=True, help="where metrics are asked for")
    parser.add_argument(
        "--mapping",
        metavar="TOML",
        required=True,
        type=Path,
        help='column -> query, as for the format prometheus: [metrics.COLUMN] with source = "QUERY", unit, ...',
    )
    add_options(parser, Prometheus, prometheus_token_file="token_file")
    parser.add_argument(
        "--kube",
        metavar="URL",
        help="Kubernetes API, as of kubectl proxy; 'in-cluster' for the service account (default: metrics tell grants)",
    )
    parser.add_argument("--namespace", default="default", help="of the deployments (default: default)")
    parser.add_argument(
        "--canary", metavar="LIST", default="", help="deployments whose replicas are written, with commas"
    )
    parser.add_argument(
        "--lease",
        metavar="NAME",
        default="schedtwin-autoscale",
        help="of several processes that write in a namespace, the one that holds this Lease does "
        "(default: schedtwin-autoscale)",
    )
    parser.add_argument("--apply", action="store_true", help="write the replicas of all deployments")
    add_options(parser, GuardConfig, "resources", "most_added", "most_removed", "max_cores")
    parser.add_argument(
        "--log", metavar="FOLDER", type=Path, help="where decisions are logged (default: nowhere)"
    )
    parser.add_argument(
        "--external",
        metavar="HOST:PORT",
        default="",
        help="offer the wanted replicas there as a metric that a HorizontalPodAutoscaler scales by "
        "(/metrics, and the external metrics API; default: nowhere)",
    )
    parser.add_argument("--external-cert", metavar="PEM", type=Path, help="certificate of that address (TLS)")
    parser.add_argument("--external-key", metavar="PEM", type=Path, help="its key, where it is another file")
    parser.add_argument("--decisions", metavar="N", type=int, help="stop after so many (default: never)")
    add_expected(parser)


def run(arguments: Namespace) -> int:
    """Decide once an interval until stopped; 0, or 2 where as many decisions as asked for all failed."""
    from logs_schema.errors import ConfigError, first
    from logs_schema.formats.mapping import read_mapping
    from offline_rl.kube_controller.kube_lease import KubeLease
    from offline_rl.kube_controller.leading import Leading
    from offline_rl.runner.scaling import load_scaling
    from offline_rl.serving.kube_api import KubeApi
    from offline_rl.serving.prometheus import Prometheus, refuse_unmapped
    from offline_rl.serving.scaling_controller import Controller
    from offline_rl.serving.scaling_guard import Guard, GuardConfig

    if arguments.decisions is not None and arguments.decisions < 1:
        raise ConfigError(f"--decisions {arguments.decisions}", allowed="1 or more")
    policy = load_scaling(arguments.bundle, expect=arguments.expect, trust=arguments.trust)
    mapping = read_mapping(arguments.mapping)
    refuse_unmapped(mapping, policy.setting.form, of_grants=not arguments.kube)
    if mapping.interval_s not in (None, policy.setting.interval_s):
        raise ConfigError(
            f"the mapping is of intervals of {mapping.interval_s:g} s, and {arguments.bundle} decides every "
            f"{policy.setting.interval_s:g} s",
            where=f"{mapping.path}, interval_s",
            allowed=f"{policy.setting.interval_s:g}",
            advice="mend the windows of its queries as well, such as [30s]",
        )
    metrics = given(Prometheus(arguments.prometheus, mapping), arguments)
    if metrics.token_file is not None and not metrics.token_file.is_file():
        raise ConfigError("there is no such file", where=f"--prometheus-token-file {metrics.token_file}")
    kube = None
    if arguments.kube:
        kube = KubeApi.in_cluster() if arguments.kube == "in-cluster" else KubeApi(arguments.kube)
    named = [name for name in arguments.canary.split(",") if name]
    guard = Guard(policy, given(GuardConfig(), arguments))
    controller = Controller(
        guard,
        metrics,
        kube,
        arguments.namespace,
        guard.written if arguments.apply else named,
        arguments.log,
        time.time,
    )
    controller.refuse_rivals()
    if unwritten := guard.unwritten:
        print(
            f"schedtwin autoscale: {arguments.bundle} was trained to change the cores of replicas as well, of "
            f"{first(unwritten)}. Without --resources they stay as they are, and what the twin promised does not hold",
            file=sys.stderr,
            flush=True,
        )
    leading = None
    if kube is not None and controller.writes:
        identity = f"{socket.gethostname()}-{os.getpid()}"
        lease = KubeLease(kube, arguments.namespace, arguments.lease)
        leading = controller.lead = Leading(lease, identity, 2.0 * policy.setting.interval_s)
        leading.leads()  # refuses an account without the rights, before anything is decided
    with ExitStack() as stack:
        stack.enter_context(alone_in(arguments.log))
        over = stack.enter_context(stop_signals())
        controller.metrics = replace(metrics, is_over=over.is_set)
        take = _offered(arguments, policy.setting.interval_s, stack) if arguments.external else None
        try:
            return _decide(controller, arguments, over, take)
        finally:
            if leading is not None:
                _resign(leading)


def _offered(
    arguments: Namespace, interval_s: float, stack: ExitStack
) -> Callable[[Mapping[str, Any]], None]:
    """Offers what is wanted as a metric, until the stack is left; takes decisions."""
    from offline_rl.serving.external_metrics import WantedReplicas, offering

    wanted = WantedReplicas(arguments.namespace, interval_s)
    stack.enter_context(offering(arguments.external, wanted, arguments.external_cert, arguments.external_key))
    return wanted.take


@contextmanager
def alone_in(log: Path | None) -> Iterator[None]:
    """Locks the folder of a log; ConfigError where another process writes it."""
    from logs_schema.atomic_folders import try_lock
    from logs_schema.errors import ConfigError

    try:
        if log is not None:
            log.mkdir(parents=True, exist_ok=True)
    except OSError:  # every decision says that it is not logged
        log = None
    lock = None if log is None else try_lock(log)
    if log is not None and lock is None:
        raise ConfigError(
            "another process writes the log of an autoscaler there",
            where=f"--log {log}",
            allowed="a folder of its own for each process",
            advice="stop the other one, or name another folder",
        )
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _resign(leading: "Leading") -> None:
    from logs_schema.errors import SchedtwinError

    try:
        leading.resign()
    except SchedtwinError as error:  # it lapses
        print(f"schedtwin autoscale: {error.what}", file=sys.stderr, flush=True)


def _decide(
    controller: "Controller",
    arguments: Namespace,
    over: threading.Event,
    take: Callable[[Mapping[str, Any]], None] | None = None,
) -> int:
    """Decisions, one an interval, each given to `take`, until there are enough or `over` is set; the exit status."""
    from evaluation.commands.statuses import DONE, USER_ERROR
    from logs_schema.errors import SchedtwinError, first

    done, made = 0, 0
    while not over.is_set():
        begun_s = time.monotonic()  # the clock may be set back, and must not prolong the wait
        try:
            decision = controller.step()
            made += 1
            if take is not None:
                take(decision)
            print(json.dumps(decision) if arguments.json else _text(decision), flush=True)
            if "follows" in decision:
                sentence = f"{decision['follows']} holds the Lease {arguments.lease}: nothing is written"
                print(f"schedtwin autoscale: {sentence}", file=sys.stderr, flush=True)
            if "not_in_the_bundle" in decision:
                sentence = (
                    f"metrics tell of {first(decision['not_in_the_bundle'])}, which the bundle does not know"
                )
                advice = "they are left alone; train again with a log that has them to scale them too"
                print(f"schedtwin autoscale: {sentence}: {advice}", file=sys.stderr, flush=True)
            if "log_error" in decision:
                print(f"schedtwin autoscale: the log: {decision['log_error']}", file=sys.stderr, flush=True)
        except (
            SchedtwinError
        ) as error:  # monitoring or cluster are away: nothing changes, and the next interval asks
            print(f"schedtwin autoscale: {error}", file=sys.stderr, flush=True)
        done += 1
        if done == arguments.decisions:
            break
        over.wait(max(controller.guard.policy.setting.interval_s - (time.monotonic() - begun_s), 0.0))
    return USER_ERROR if done == arguments.decisions and not made else DONE


def _text(decision: dict) -> str:
    lines = [decision["time"]]
    for row in decision["deployments"]:
        granted, wanted = row["granted"], row["wanted"]
        change = " ".join(
            f"{name} {granted[name]:g} -> {wanted[name]:g}"
            if granted[name] != wanted[name]
            else f"{name} {wanted[name]:g}"
            for name in wanted
            if wanted[name] is not None and granted[name] is not None
        )
        why = f" ({row['arm']}: {row['reason']})" if row["reason"] else ""
        lines.append(
            f"  {row['deployment']}: {change or NOT_KNOWN}{' written' if row['written'] else ''}{why}"
        )
        if row["error"]:
            lines.append(
                f"    {'but ' if row['written'] else 'not written: '}"
                + " | ".join(row["error"].split("\n  "))
            )
    return "\n".join(lines)
