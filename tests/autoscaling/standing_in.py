"""A small stand-in of Prometheus and the Kubernetes API, and a controller that asks it."""

import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlparse

from logs_schema.formats.mapping import read_mapping
from offline_rl.runner.scaling import load_scaling
from offline_rl.serving.kube_api import KubeApi
from offline_rl.serving.prometheus import Prometheus
from offline_rl.serving.scaling_controller import Controller
from offline_rl.serving.scaling_guard import Guard, GuardConfig
from tests.autoscaling.guarded import INTERVAL_S, NAMES

NOW_S = 1_700_000_015.0
QUERIES = {
    "cpu_cores_used": "cpu",
    "request_rate_per_s": "rate",
    "response_s": "response",
    "request_rate_per_s.gateway": "users",
    "response_p95_s.gateway": "p95",
}
UNITS = {"cpu": "millicores", "response": "ms"}
LAST = int(NOW_S // INTERVAL_S) - 1


class StandIn:
    """What Prometheus and the API of a cluster answer, and what was written to it."""

    def __init__(self):
        self.values = {"cpu": 200.0, "rate": 10.0, "response": 50.0, "users": 10.0, "p95": 0.2}
        self.replicas, self.ruled, self.written, self.last = dict.fromkeys(NAMES, 2), [], [], LAST
        self.limits = {"cpu": "500m", "memory": "512Mi"}
        self.status, self.raw = 200, {}  # query -> bytes that are sent as the whole answer, head and all

    def query(self, asked):
        name = asked["query"][0]
        labels = [{}] if name in ("users", "p95") else [{"deployment": one} for one in NAMES]
        points = [[at * INTERVAL_S, str(self.values[name])] for at in range(self.last - 11, self.last + 1)]
        return {
            "status": "success",
            "data": {"resultType": "matrix", "result": [{"metric": one, "values": points} for one in labels]},
        }

    def deployments(self):
        template = {"spec": {"containers": [{"name": "main", "resources": {"limits": self.limits}}]}}
        return {
            "items": [
                {"metadata": {"name": name}, "spec": {"replicas": number, "template": template}}
                for name, number in self.replicas.items()
            ]
        }


def mapping_in(folder, queries=QUERIES):
    lines = []
    for column, query in queries.items():
        lines += [
            f'[metrics."{column}"]',
            f'source = "{query}"',
            f"of_gateway = {str('gateway' in column).lower()}",
        ]
        lines += [f'unit = "{UNITS[query]}"'] if query in UNITS else []
    (folder / "mapping.toml").write_text("\n".join(lines))
    return folder / "mapping.toml"


@contextmanager
def controlling(tmp_path, bundle, stand_in, writes=(), config=None, log=None):
    metrics = Prometheus(stand_in.url, read_mapping(mapping_in(tmp_path)))
    guard = Guard(load_scaling(bundle), config or GuardConfig())
    yield Controller(guard, metrics, KubeApi(stand_in.url), "shop", writes, log, lambda: NOW_S)


def http(body, head="HTTP/1.0 200 OK"):
    return f"{head}\r\n\r\n{body}".encode()


def handler_of(shown):
    """What answers HTTP as `shown` says."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            path = urlparse(self.path)
            asked = parse_qs(path.query).get("query", [path.path.split("/")[-1]])[0]
            if asked in shown.raw:
                self.wfile.write(shown.raw[asked])
            elif path.path == "/api/v1/query_range":
                self.answer(shown.query(parse_qs(path.query)))
            elif path.path.endswith("horizontalpodautoscalers"):
                self.answer({"items": [{"spec": {"scaleTargetRef": {"name": one}}} for one in shown.ruled]})
            else:
                self.answer(shown.deployments())

        def do_PATCH(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            shown.written.append((self.path, body))
            if self.path.endswith("/scale") and shown.status == 200:
                shown.replicas[self.path.split("/")[-2]] = body["spec"]["replicas"]
            self.answer({})

        def answer(self, value):
            data = json.dumps(value).encode()
            self.send_response(shown.status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    return Handler
