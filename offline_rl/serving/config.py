"""Configuration of a server, apart from what it needs installed."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from offline_rl.serving.errors import ServingError

Heuristic = Literal["least_loaded", "fewest_requests", "any"]
MAX_DEADLINE_S = 60.0


@dataclass(frozen=True)
class ServiceConfig:
    """How decisions are taken.

    Attributes:
        deadline_s: Time after which the fallback answers.
        shadow: Answer by the fallback, log what the policy would have done; a queue's answers say it beside.
        canary: Share of requests that the policy answers.
        explore: Share answered by any feasible node, so that tomorrow's log can distinguish policies; not for queues.
        fallback: Heuristic where no rule answers.
        seed: Of the draws (default: from the system).
    """

    deadline_s: float = 0.05
    shadow: bool = False
    canary: float = field(default=1.0, metadata={"metavar": "SHARE"})
    explore: float = field(default=0.0, metadata={"metavar": "SHARE"})
    fallback: Heuristic = "least_loaded"
    seed: int | None = None

    def __post_init__(self) -> None:
        for name in ("canary", "explore"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ServingError(
                    f"a share of {getattr(self, name):g}", where=f"--{name}", allowed="between 0 and 1"
                )
        if self.shadow and 0.0 < self.canary < 1.0:
            raise ServingError(
                "a shadow answers no request by the policy, a canary answers a share of them",
                where=f"--shadow, --canary {self.canary:g}",
                allowed="one of the two",
                advice="leave out the other",
            )
        if self.fallback not in get_args(Heuristic):
            raise ServingError(
                f"the heuristic {self.fallback!r}", where="--fallback", allowed=", ".join(get_args(Heuristic))
            )
        if not 0.0 < self.deadline_s <= MAX_DEADLINE_S:
            raise ServingError(
                f"a deadline of {self.deadline_s:g} s",
                where="--deadline-ms",
                allowed=f"more than 0, at most {MAX_DEADLINE_S:g} s",
            )

    @property
    def share(self) -> float:
        """Share of requests that the policy answers."""
        return 0.0 if self.shadow else self.canary


@dataclass(frozen=True)
class ServerConfig:
    """Where and how to serve.

    Attributes:
        bundle: The bundle; loaded anew on SIGHUP and `POST /reload`.
        host: Where to listen; 127.0.0.1 is this machine only.
        port: 0 takes any free one.
        token_file: File with the token that callers must present.
        tls_cert: Certificate; with --tls-key.
        tls_key: Its key.
        log: Folder in which decisions are logged (default: nowhere); not for queues.
        inventory: File in which the inventory is kept over restarts (default: inventory.json in the folder of the log).
        backend: What computes the policy's network.
        service: How decisions are taken.
        expect: The content hash that the bundle must have, at every reload too; None accepts any.
        trust: Public key of whoever must have signed the bundle, at every reload too; None: anybody.
        rule: Bundle of a rule of the same training that answers where the policy does not (default: the one that
            the bundle holds, else the fallback).
    """

    bundle: Path
    host: str = "127.0.0.1"
    port: int = 8900
    token_file: Path | None = None
    tls_cert: Path | None = field(default=None, metadata={"metavar": "PEM"})
    tls_key: Path | None = field(default=None, metadata={"metavar": "PEM"})
    log: Path | None = field(default=None, metadata={"metavar": "FOLDER"})
    inventory: Path | None = None
    backend: Literal["numpy", "onnx"] = "numpy"
    service: ServiceConfig = field(default_factory=ServiceConfig)
    expect: str | None = None
    trust: Path | None = None
    rule: Path | None = field(default=None, metadata={"metavar": "BUNDLE"})
