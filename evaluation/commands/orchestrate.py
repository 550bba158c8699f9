"""`schedtwin orchestrate`: the orchestrator of a bundle as a Kubernetes controller."""

import json
import os
import socket
from argparse import ArgumentParser, Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluation.commands.common_arguments import add_inputs
from evaluation.commands.expecting import add_expected
from evaluation.commands.options import add_options, given
from evaluation.commands.stopping import stop_signals

if TYPE_CHECKING:
    from offline_rl.kube_controller.controller import FrameResult
    from offline_rl.kube_controller.recording import FrameMetrics

NAME = "orchestrate"
HELP = "change replicas by an exported orchestrator, as a Kubernetes controller"


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the arguments."""
    from offline_rl.kube_controller.controller import ControllerConfig
    from offline_rl.kube_controller.kubernetes import Access

    add_inputs(parser, "bundle")
    parser.add_argument(
        "--loads", metavar="FILE_OR_URL", required=True, help="where loads are reported, as one JSON object"
    )
    add_options(parser, ControllerConfig, "max_changes", apply="applies", midnight="midnight_s")
    parser.add_argument(
        "--frames", metavar="N", type=int, help="end after so many (default: run until stopped)"
    )
    parser.add_argument(
        "--log", metavar="FOLDER", type=Path, help="where decisions are logged (default: nowhere)"
    )
    parser.add_argument(
        "--metrics-port",
        metavar="PORT",
        type=int,
        help="metrics on this port of this machine (default: none)",
    )
    where = parser.add_argument_group("the API server (default: that of the pod that this runs in)")
    add_options(
        where, Access, "server", "token_file", "ca_file", "kubeconfig", "namespace", timeout="timeout_s"
    )
    add_expected(parser)


def run(arguments: Namespace) -> int:
    """Change replicas frame by frame until stopped; 0, or 2 where as many frames as asked for all failed."""
    from evaluation.commands.statuses import DONE, USER_ERROR
    from logs_schema.errors import ConfigError
    from offline_rl.kube_controller.controller import ControllerConfig, FrameController
    from offline_rl.kube_controller.kubernetes import Access, KubernetesCluster
    from offline_rl.kube_controller.leading import Leading
    from offline_rl.kube_controller.loads import refuse_source
    from offline_rl.kube_controller.recording import FrameMetrics, Recording
    from offline_rl.runner.orchestrator import load_orchestrator

    if arguments.frames is not None and arguments.frames < 1:
        raise ConfigError(f"--frames {arguments.frames}", allowed="1 or more")
    config = given(ControllerConfig(arguments.loads), arguments)
    refuse_source(config.loads)
    cluster = KubernetesCluster(given(Access(), arguments))
    orchestrator = load_orchestrator(arguments.bundle, expect=arguments.expect, trust=arguments.trust)
    leading = Leading(cluster, f"{socket.gethostname()}-{os.getpid()}", 2.0 * orchestrator.facts.frame_s)
    recording, metrics = Recording(arguments.log, orchestrator.content_hash), FrameMetrics()
    if arguments.metrics_port is not None:
        _offer(metrics, arguments.metrics_port)
    controller = FrameController(orchestrator, cluster, config, leading, recording, metrics)
    outcomes: list[str] = []  # of the frames, where so many were asked for

    def show(frame: "FrameResult") -> None:
        if arguments.frames is not None:
            outcomes.append(frame.outcome)
        line = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **frame.to_json()}
        print(json.dumps(line) if arguments.json else _text(line), flush=True)

    if not arguments.json:
        mode = "changing scales" if config.applies else "dry run"
        print(f"orchestrating {arguments.bundle} every {orchestrator.facts.frame_s:g} s ({mode})", flush=True)
    with stop_signals() as over:
        controller.run(lambda wait_s: len(outcomes) == arguments.frames or over.wait(wait_s), show)
    has_failed = len(outcomes) == arguments.frames and set(outcomes) == {"failed"}
    return USER_ERROR if has_failed else DONE


def _offer(metrics: "FrameMetrics", port: int) -> None:
    """Serves the metrics on a port of this machine alone; ConfigError where it cannot be had."""
    from prometheus_client import start_http_server

    from logs_schema.errors import ConfigError

    try:
        start_http_server(port, "127.0.0.1", registry=metrics.registry)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"metrics cannot be offered there ({error})",
            where=f"--metrics-port {port}",
            allowed="a free port, from 1 to 65535",
            advice="name another port, or stop what listens on this one",
        ) from error


def _text(frame: dict[str, Any]) -> str:
    """A frame in a line; why it failed is said on stderr."""
    changes = [f"{one['service']} on {one['node']} {one['from']} -> {one['to']}" for one in frame["changes"]]
    parts = [frame["outcome"].replace("_", " "), ", ".join(changes), *frame["left_out"]]
    return f"{frame['time']}  {'; '.join(part for part in parts if part)}"
