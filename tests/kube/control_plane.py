"""A control plane on loopback: etcd, kube-apiserver and kube-scheduler as processes of this machine, without kubelets.

Their programs are taken from one folder. Nodes are made, and pods ended, through the API by whoever tries something.
"""

import http.client
import json
import re
import secrets
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler")
START_S = 180.0
"""How long a program may take to answer; etcd and the API server take seconds where the machine is idle."""
IDLE_S = 30.0
"""After which a connection is opened anew: the server may have closed it."""
FIRST_V1 = (1, 25)
"""First kube-scheduler that takes `kubescheduler.config.k8s.io/v1`; 1.23 and 1.24 take neither that nor `v1beta1`."""
JSON, MERGE = "application/json", "application/merge-patch+json"


class Api:
    """One connection to the API server. Not thread-safe."""

    def __init__(self, port: int, token: str, certificate: Path, patience_s: float | None) -> None:
        context = ssl.create_default_context(cafile=str(certificate))
        self._connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=patience_s, context=context)
        self._headers = {"Authorization": f"Bearer {token}", "Accept": JSON}
        self._used_s = time.monotonic()

    def call(self, method: str, path: str, content: object = None, kind: str = JSON) -> dict[str, Any]:
        """The answer's content; AssertionError with the server's words where it refuses."""
        answer = self._ask(method, path, content, kind)
        said = answer.read()
        assert answer.status < 300, f"{method} {path}: {answer.status} {said.decode()}"
        return json.loads(said)

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def is_ready(self) -> bool:
        """Whether the server answers and says so."""
        try:
            answer = self._ask("GET", "/readyz", None, JSON)
            answer.read()
        except OSError:
            self._connection.close()
            return False
        return answer.status == 200

    def watch(self, path: str, version: str) -> Iterator[dict[str, Any]]:
        """Events about the objects of a list since one of its versions, until the server ends it."""
        answer = self._ask("GET", f"{path}?watch=1&timeoutSeconds=3600&resourceVersion={version}", None, JSON)
        while line := answer.readline():
            yield json.loads(line)

    def _ask(self, method: str, path: str, content: object, kind: str) -> http.client.HTTPResponse:
        body = None if content is None else json.dumps(content)
        if time.monotonic() - self._used_s > IDLE_S:  # opened again by the request
            self._connection.close()
        self._used_s = time.monotonic()
        self._connection.request(method, path, body, self._headers | {"Content-Type": kind})
        return self._connection.getresponse()


class ControlPlane:
    """etcd and the API server, running.

    Args:
        programs: Folder with `PROGRAMS`.
        work: Folder for data, keys and output.
        running: Ends what is started.
        after: Is closed when all of that has ended.
    """

    def __init__(self, programs: Path, work: Path, running: ExitStack, after: ExitStack) -> None:
        self.programs, self.work, self.after, self._token = programs, work, after, secrets.token_hex(16)
        etcd, peers, self.port = free_port(), free_port(), free_port()
        (work / "tokens.csv").write_text(f'{self._token},trial,1,"system:masters"\n')
        subprocess.run(
            ["openssl", "genrsa", "-out", "key.pem", "2048"], cwd=work, check=True, capture_output=True
        )
        running.enter_context(
            self._program(
                "etcd",
                f"--data-dir={work / 'etcd'}",
                f"--listen-client-urls=http://127.0.0.1:{etcd}",
                f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                f"--listen-peer-urls=http://127.0.0.1:{peers}",
                f"--initial-cluster=default=http://127.0.0.1:{peers}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            )
        )
        server = running.enter_context(
            self._program(
                "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}", "--bind-address=127.0.0.1",
                f"--secure-port={self.port}", f"--cert-dir={work}", "--token-auth-file=tokens.csv",
                "--anonymous-auth=false", "--authorization-mode=AlwaysAllow", "--service-cluster-ip-range=10.0.0.0/24",
                "--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=key.pem",
                "--service-account-signing-key-file=key.pem",
                "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            )
        )  # fmt: skip
        until(lambda: (work / "apiserver.crt").is_file(), server, work)
        api = self.api()
        until(api.is_ready, server, work)
        self.version = api.call("GET", "/version")["gitVersion"]

    def api(self, patience_s: float | None = 60.0) -> Api:
        """A connection of one's own, which waits so long for an answer; None: for ever."""
        api = Api(self.port, self._token, self.work / "apiserver.crt", patience_s)
        self.after.callback(api.close)
        return api

    @contextmanager
    def scheduler(
        self, configurations: dict[str, dict[str, Any]], url: str, timeout_ms: int
    ) -> Iterator[None]:
        """kube-scheduler with one of our configurations, the newest that it takes.

        Args:
            configurations: By the last part of their `apiVersion`.
            url: Where the extender is.
            timeout_ms: What the scheduler waits for it.
        """
        kubeconfig = {
            "apiVersion": "v1", "kind": "Config", "current-context": "trial",
            "clusters": [{"name": "trial", "cluster": {
                "server": f"https://127.0.0.1:{self.port}", "certificate-authority": str(self.work / "apiserver.crt"),
            }}],
            "users": [{"name": "trial", "user": {"token": self._token}}],
            "contexts": [{"name": "trial", "context": {"cluster": "trial", "user": "trial"}}],
        }  # fmt: skip
        (self.work / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        is_new = version_of(self.version) >= FIRST_V1
        configuration = configurations["v1" if is_new else "v1beta1"] | {
            "clientConnection": {"kubeconfig": str(self.work / "kubeconfig")}
        }
        if not is_new:  # its open port is all addresses' by default
            plain = f"127.0.0.1:{free_port()}"
            configuration |= {"healthzBindAddress": plain, "metricsBindAddress": plain}
        (extender,) = configuration["extenders"]
        configuration["extenders"] = [extender | {"urlPrefix": url, "httpTimeout": f"{timeout_ms}ms"}]
        (self.work / "scheduler.yaml").write_text(yaml.safe_dump(configuration))
        with self._program("kube-scheduler", "--config=scheduler.yaml", "--secure-port=0"):
            yield

    @contextmanager
    def _program(self, name: str, *options: str) -> Iterator["subprocess.Popen[bytes]"]:
        """A program that is killed at the end; what it says is appended to a file of its name."""
        with (
            (self.work / f"{name}.log").open("ab") as said,
            subprocess.Popen(
                [self.programs / name, *options], cwd=self.work, stdout=said, stderr=said
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()


@contextmanager
def control_plane(programs: Path, work: Path) -> Iterator[ControlPlane]:
    """etcd and the API server on free ports of this machine."""
    with ExitStack() as after, ExitStack() as running:
        yield ControlPlane(programs, work, running, after)


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def version_of(words: str) -> tuple[int, int]:
    """Of `v1.20.2`: 1, 20."""
    found = re.match(r"v(\d+)\.(\d+)", words)
    assert found is not None, f"no version of Kubernetes: {words!r}"
    return int(found[1]), int(found[2])


def until(is_so: Callable[[], bool], process: "subprocess.Popen[bytes]", work: Path) -> None:
    """Waits for a program; AssertionError with the end of what it said where it ended or took too long."""
    end_s = time.monotonic() + START_S
    while not is_so():
        said = "\n".join(path.read_text(errors="replace")[-2000:] for path in sorted(work.glob("*.log")))
        assert process.poll() is None, f"{process.args!r} ended: {said}"
        assert time.monotonic() < end_s, f"{process.args!r} does not answer: {said}"
        time.sleep(0.2)
