"""Starting the server: where it may listen, with what protection, and how it ends.

On loopback it needs nothing. Anywhere else it needs a token and TLS: whoever can reach it can steer the cluster.
"""

import asyncio
import ipaddress
import logging
import os
import signal
import socket
import ssl
import stat
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from logs_schema.errors import SchedtwinError
from offline_rl.serving.accepting import GuardedServer
from offline_rl.serving.app import App
from offline_rl.serving.config import ServerConfig, ServiceConfig
from offline_rl.serving.connections import Connections, connection_limit
from offline_rl.serving.decision_log import TABLES, DecisionLog
from offline_rl.serving.errors import ServingError
from offline_rl.serving.journal import FOLDER_MODE
from offline_rl.serving.kept_inventory import FILE, KeptInventory
from offline_rl.serving.metrics import Metrics
from offline_rl.serving.notices import SparseFilter
from offline_rl.serving.policies import PolicySlot, ServedPolicy, load_policy
from offline_rl.serving.protocol import GuardedProtocol
from offline_rl.serving.service import Service

STOP_S = 5
MIN_TOKEN = 16
"""Shortest token, in characters."""


def serve(config: ServerConfig, ready: Callable[[dict[str, Any]], None] = lambda facts: None) -> None:
    """Serves until it is stopped (SIGINT, SIGTERM); reloads the bundle on SIGHUP.

    Args:
        config: See `ServerConfig`.
        ready: Called once, with where it listens and what it serves.

    Raises:
        ServingError: It may not or cannot listen there, or what is asked for is not done for this bundle.
        ProductError: The bundle cannot be used.
    """
    token, tls = protection(config), tls_context(config)
    for secret in filter(None, (config.token_file, config.tls_key)):
        warn_of_readers(secret)
    metrics = Metrics()
    slot = PolicySlot(partial(load_served, config), metrics)
    if config.log is not None:
        prepare_log(config.log)
    listener = listen(config.host, config.port)
    log = DecisionLog(config.log, metrics)
    host, port = listener.getsockname()[:2]
    facts = {
        "url": f"{'https' if config.tls_cert else 'http'}://{f'[{host}]' if ':' in host else host}:{port}",
        "pid": os.getpid(),
        "bundle": str(config.bundle),
        "content_hash": slot.policy.content_hash,
        "log": None if config.log is None else str(config.log),
    }

    def start() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload_aside, slot)
        ready(facts)

    sys.setswitchinterval(0.001)  # the policy's thread must not keep the answers waiting
    kept = KeptInventory(kept_at(config))
    app = App(Service(slot, config.service, log, metrics, kept=kept), token, start, log.close)
    try:
        guarded_server(app, metrics, tls).run([listener])
    finally:
        log.close()
        listener.close()


def kept_at(config: ServerConfig) -> Path | None:
    """The file of the inventory; None where nothing is kept.

    Raises:
        ServingError: There is no such folder.
    """
    path = config.inventory
    if path is None:
        return None if config.log is None else config.log / FILE
    if path.is_dir() or not path.parent.is_dir():
        raise ServingError(
            "no inventory can be kept there",
            where=f"--inventory {path}",
            allowed="a file in a folder that is there",
        )
    return path


_OF_QUEUES = (
    "a queue's bundle is served without a log, exploration, and heuristics of placement",
    "--shadow, --canary, --deadline-ms and --seed",
    "leave them out: answers to /order say who decided and what the policy would have started",
)
_OF_ASSIGNERS = (
    "a bundle that assigns many requests at once is served as it is",
    "none of them",
    "leave them out: /assign has its own deadline_ms, and is not logged",
)
"""Of a refusal: what, what is allowed, what to do."""


def load_served(config: ServerConfig) -> ServedPolicy:
    """The bundle as it is now, ready to serve.

    Raises:
        ServingError: A bundle that places nothing is to be logged, to explore, or to fall back on a heuristic of
            placement; one that assigns is to be a shadow or a canary.
        ProductError: The bundle cannot be used.
    """
    policy = load_policy(
        config.bundle, config.backend, expect=config.expect, trust=config.trust, rule=config.rule
    )
    if policy.queue is None and policy.assigner is None:
        return policy
    service = config.service
    options = {
        f"--log {config.log}": config.log is not None,
        f"--inventory {config.inventory}": config.inventory is not None,
        f"--explore {service.explore:g}": service.explore > 0.0,
        f"--fallback {service.fallback}": service.fallback != ServiceConfig.fallback,
    }
    what, allowed, advice = _OF_QUEUES
    if policy.assigner is not None:
        options |= {"--shadow": service.shadow, f"--canary {service.canary:g}": service.canary < 1.0}
        what, allowed, advice = _OF_ASSIGNERS
    if given := [option for option, is_given in options.items() if is_given]:
        raise ServingError(what, where=", ".join(given), allowed=allowed, advice=advice)
    return policy


def guarded_server(app: App, metrics: Metrics, tls: ssl.SSLContext | None = None) -> GuardedServer:
    """uvicorn, set up for the application."""
    for name in ("uvicorn.error", "asyncio"):
        logger = logging.getLogger(name)
        if not any(isinstance(each, SparseFilter) for each in logger.filters):
            logger.addFilter(SparseFilter())
    config = uvicorn.Config(
        app,
        http=GuardedProtocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=STOP_S,
    )
    return GuardedServer(config, Connections(connection_limit(), metrics), tls)


def reload_aside(slot: PolicySlot) -> None:
    """Reloads the bundle in a thread of its own, and says what came of it on standard error."""

    def run() -> None:
        try:
            policy: ServedPolicy = slot.reload()
        except SchedtwinError as error:
            print(f"schedtwin serve: the bundle in use stays: {error}", file=sys.stderr, flush=True)
        else:
            print(f"schedtwin serve: serving {policy.content_hash}", file=sys.stderr, flush=True)

    threading.Thread(target=run, name="reload", daemon=True).start()


def protection(config: ServerConfig) -> str | None:
    """The token, if there is to be one.

    Raises:
        ServingError: The server would be open to others without token or TLS, a file is missing, or the token is short.
    """
    if (config.tls_cert is None) != (config.tls_key is None):
        raise ServingError("TLS needs a certificate and its key", allowed="--tls-cert and --tls-key together")
    if not is_loopback(config.host) and (config.token_file is None or config.tls_cert is None):
        raise ServingError(
            "the server would be open to other machines without protection",
            where=f"--host {config.host}",
            allowed="loopback, or --token-file with --tls-cert and --tls-key",
            advice="listen on 127.0.0.1, or make a token and a certificate",
        )
    for path in (config.tls_cert, config.tls_key):
        if path is not None and not path.is_file():
            raise ServingError("there is no such file", where=str(path), allowed="a PEM file")
    if config.token_file is None:
        return None
    try:
        token = config.token_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise ServingError(
            f"the token cannot be read ({type(error).__name__})",
            where=str(config.token_file),
            allowed="a file of text",
            advice="check the path and its permissions",
        ) from error
    if len(token) < MIN_TOKEN:
        raise ServingError(
            "the token is too short to protect anything",
            where=f"{config.token_file}: {len(token)} characters",
            allowed=f"at least {MIN_TOKEN}",
            advice="openssl rand -hex 32",
        )
    return token


def prepare_log(folder: Path) -> None:
    """Makes the folders of the decision log, so that a wrong one is noticed before anything is decided.

    Raises:
        ServingError: A file is in the way, or the folder cannot be made or written.
    """
    for path in (folder, *(folder / table for table in TABLES)):
        try:
            path.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(f"not writable: {path}")
        except OSError as error:
            raise ServingError(
                "decisions cannot be logged there",
                where=f"--log {folder}: {error}",
                allowed="a folder that can be written, or a new one",
            ) from error


def warn_of_readers(path: Path) -> None:
    """Says so on standard error where everybody on this machine may read a secret."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & stat.S_IROTH:
        sentence = f"everybody on this machine may read {path} (mode {mode:04o}): chmod 600"
        print(f"schedtwin serve: {sentence}", file=sys.stderr, flush=True)


def tls_context(config: ServerConfig) -> ssl.SSLContext | None:
    """What callers shake hands with; None where there is to be no TLS.

    Raises:
        ServingError: The files are no certificate and key, need a password, or do not belong together.
    """
    if config.tls_cert is None or config.tls_key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        mismatch = "MISMATCH" in (getattr(error, "reason", None) or "")
        raise ServingError(
            "the certificate and the key do not belong together"
            if mismatch
            else "certificate or key cannot be read",
            where=f"{config.tls_cert}, {config.tls_key}: {error}",
            allowed="two PEM files: a certificate (chain), and its key without a password",
        ) from error
    return context


def _no_password() -> str:
    raise ValueError("the key needs a password, and nobody is there to give it")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host's address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listen(host: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        ServingError: The address cannot be listened on.
    """
    if not 0 <= port <= 65_535:
        raise ServingError(
            "there is no such port", where=str(port), allowed="0 to 65535; 0 takes any free one"
        )
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address[:2], family=family, backlog=2048)
        # An answer is two writes: never wait 40 ms
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except (OSError, OverflowError) as error:
        raise ServingError(
            "this address cannot be listened on",
            where=f"{host}:{port}: {error}",
            advice="choose another --port",
        ) from error
