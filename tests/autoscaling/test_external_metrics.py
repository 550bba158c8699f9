"""The wanted replicas as a metric: a pod autoscaler that reads it scales, and one that gets none changes nothing."""

import datetime as dt
import json
import socket
import ssl
import struct
import time
from contextlib import suppress
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from evaluation.commands.cli import main
from logs_schema.errors import ConfigError
from offline_rl.serving import external_metrics
from offline_rl.serving.external_metrics import GROUP, METRIC, WantedReplicas, offering
from offline_rl.serving.scaling_guard import FALLBACK, HOLD, POLICY
from tests.autoscaling.standing_in import mapping_in

PATH = f"/apis/{GROUP}/namespaces/shop/{METRIC}"
INTERVAL_S = 30.0


def decision(**arms):
    rows = [
        {"deployment": name, "arm": arm, "wanted": {"replicas": replicas}}
        for name, (arm, replicas) in arms.items()
    ]
    return {"time": "2024-01-01T00:00:00+00:00", "deployments": rows}


@pytest.fixture
def wanted():
    found = WantedReplicas("shop", INTERVAL_S, lambda: found.now_s)
    found.now_s = 0.0
    found.take(decision(cart=(POLICY, 3.0), front=(FALLBACK, 5.0), bank=(HOLD, 2.0), gone=(POLICY, None)))
    return found


def values(wanted, target):
    status, _, content = wanted.answer(target)
    assert status == 200
    return {one["metricLabels"]["deployment"]: one["value"] for one in json.loads(content)["items"]}


def test_a_pod_autoscaler_is_told_what_is_wanted_of_its_deployment(wanted):
    assert values(wanted, f"{PATH}?labelSelector=deployment%3Dcart") == {"cart": "3"}
    assert values(wanted, f"{PATH}?labelSelector=deployment%3D%3Dfront") == {"front": "5"}
    assert values(wanted, PATH) == {"cart": "3", "front": "5"}  # of the others nothing is decided
    status, _, content = wanted.answer(f"{PATH}?labelSelector=app%3Dcart")
    assert (status, json.loads(content)["message"]) == (
        400,
        "labelSelector 'app=cart': only deployment=NAME is known",
    )
    assert wanted.answer(PATH.replace("shop", "other"))[0] == 404
    assert METRIC in wanted.answer(f"/apis/{GROUP}")[2].decode()
    assert f'{METRIC}{{deployment="cart"}} 3\n' in wanted.answer("/metrics")[2].decode()


def test_what_was_decided_too_long_ago_has_no_value(wanted):
    wanted.now_s = 2.0 * INTERVAL_S
    assert values(wanted, PATH) == {"cart": "3", "front": "5"}
    wanted.now_s += 1.0
    assert values(wanted, PATH) == {}
    assert "{" not in wanted.answer("/metrics")[2].decode()


def test_it_is_offered_over_http_until_it_is_over(wanted):
    with offering("127.0.0.1:0", wanted) as port:
        url = f"http://127.0.0.1:{port}"
        with urlopen(f"{url}{PATH}?labelSelector=deployment%3Dcart", timeout=5) as answer:
            assert json.load(answer)["items"][0]["value"] == "3"
        with pytest.raises(HTTPError, match="404") as refused:
            urlopen(f"{url}/other", timeout=5)
        refused.value.close()
        with (
            pytest.raises(ConfigError, match="cannot be offered there"),
            offering(f"127.0.0.1:{port}", wanted),
        ):
            pass
    with pytest.raises(OSError, match="refused"):
        urlopen(url, timeout=5)


def test_callers_that_go_or_drip_are_hung_up_on_without_a_word(monkeypatch, wanted, capfd):
    monkeypatch.setattr(external_metrics, "SILENT_S", 0.3)
    with offering("127.0.0.1:0", wanted) as port:
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # a reset, no goodbye
            gone.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        with socket.create_connection(("127.0.0.1", port), timeout=5) as slow:
            begun_s = time.monotonic()
            with suppress(OSError):
                for _ in range(40):  # 2 s, were nobody to end it
                    slow.sendall(b"G")
                    time.sleep(0.05)
            assert time.monotonic() - begun_s < 1.5
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            assert answer.status == 200
    assert capfd.readouterr().err == ""


def test_it_is_offered_by_tls(tmp_path, wanted):
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=1))
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    pem = built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (tmp_path / "cert.pem").write_bytes(pem)
    kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "key.pem").write_bytes(key.private_bytes(*kinds))
    context = ssl.create_default_context(cafile=tmp_path / "cert.pem")
    with (
        offering("127.0.0.1:0", wanted, tmp_path / "cert.pem", tmp_path / "key.pem") as port,
        urlopen(f"https://localhost:{port}{PATH}", timeout=5, context=context) as answer,
    ):
        assert len(json.load(answer)["items"]) == 2
    with (
        pytest.raises(ConfigError, match="certificate or key cannot be read"),
        offering("127.0.0.1:0", wanted, tmp_path / "key.pem"),
    ):
        pass


def test_the_command_refuses_an_address_that_is_none(tmp_path, deciding_once, capsys):
    arguments = [*deciding_once, "--mapping", str(mapping_in(tmp_path)), "--external"]
    for address in ("localhost", "9465", ":9465", "127.0.0.1:http"):  # a port alone would open every address
        assert main([*arguments, address]) == 2
        assert f"no address to offer anything at\n  where: --external {address}\n" in capsys.readouterr().err
    assert main([*arguments, "127.0.0.1:0"]) == 0
