"""Callers before anybody looks at their token: heads without end, crowds that say nothing, answers nobody takes."""

import asyncio
import json
import resource
import socket
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from offline_rl.serving import accepting, connections, protocol
from offline_rl.serving.app import App
from offline_rl.serving.connections import Connections, connection_limit
from offline_rl.serving.metrics import Metrics
from offline_rl.serving.notices import AGAIN_S, Notices
from tests.serving.making import NAMES, listening, made_service, metric, pod

ROOT = Path(__file__).resolve().parents[2]
BODY = json.dumps({"Pod": pod(), "NodeNames": list(NAMES)}).encode()
QUESTION = b"POST /prioritize HTTP/1.1\r\nHost: s\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


async def answer_to(port: int, *parts: bytes) -> bytes:
    """All that comes back until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(0.05)
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b"reset"
    finally:
        writer.close()


BEGIN = b"GET /healthz HTTP/1.1\r\nHost: s\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        (BEGIN, b"A: %s\r\n\r\n" % (b"x" * 17_000)),
        (BEGIN, b"A: ", b"x" * 40_000),
        (BEGIN + b"A: b\r\n" * 70 + b"\r\n",),
        (b"GET /" + b"x" * 17_000,),
        (b"POST /prioritize HTTP/1.1\r\nTransfer-Encoding: chunked\r\nA: %s\r\n\r\n" % (b"x" * 17_000),),
    ],
    ids=["long header", "endless header", "many lines", "long path", "chunked"],
)
def test_a_head_has_bounds_before_the_token_is_looked_at(parts):
    app = App(made_service(), "0123456789abcdef")

    async def live() -> tuple[bytes, bytes]:
        async with listening(app) as port:
            return await answer_to(port, *parts), await answer_to(port, BEGIN + b"Connection: close\r\n\r\n")

    large, usual = asyncio.run(live())
    assert large.startswith(b"HTTP/1.1 431 Request Header Fields Too Large")
    assert usual.startswith(b"HTTP/1.1 200")
    assert 'answers_total{path="other",status="431"} 1.0' in app.service.metrics.text().decode()


def test_a_trailer_has_the_same_bounds_and_what_is_no_http_is_refused():
    async def live() -> list[bytes]:
        begun = b"POST /decide HTTP/1.1\r\nHost: s\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nT: "
        async with listening(App(made_service())) as port:
            return [await answer_to(port, begun, b"x" * 17_000), await answer_to(port, b"\x16\x03\x01" * 50)]

    trailer, nonsense = asyncio.run(live())
    assert trailer.startswith(b"HTTP/1.1 431")
    assert nonsense.startswith(b"HTTP/1.1 400")


def test_who_asks_for_another_protocol_is_told_that_the_content_is_lost():
    head, _, body = QUESTION.partition(b"\r\n\r\n")
    asked = head + b"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"

    async def live() -> list[bytes]:
        async with listening(App(made_service())) as port:
            usual = BEGIN + b"Connection: close\r\n\r\n"
            return [await answer_to(port, asked + body, usual), await answer_to(port, asked, body)]

    at_once, apart = asyncio.run(live())
    for answer in (at_once, apart):
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"is missing: ask by HTTP/1.1, without Upgrade" in answer


def test_a_head_of_usual_size_is_taken_over_and_over_on_one_connection():
    async def live() -> list[bytes]:
        async with listening(App(made_service())) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            heads = []
            for _ in range(30):  # 60 kB of heads in all
                writer.write(QUESTION.replace(b"Host: s", b"Host: s\r\nA: " + b"x" * 2000))
                head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
                await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r")[0]))
                heads.append(head[:12])
            writer.close()
            return heads

    assert asyncio.run(live()) == [b"HTTP/1.1 200"] * 30


async def first_line(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(QUESTION)
    try:
        return await asyncio.wait_for(reader.readline(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_where_there_is_no_room_the_longest_idle_caller_has_to_go():
    service = made_service()

    async def live() -> tuple[list[bytes], list[bool]]:
        async with listening(App(service), limit=10) as port:
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
            answered = [await first_line(port) for _ in range(4)]
            kept = await asyncio.open_connection("127.0.0.1", port)
            kept[1].write(QUESTION)
            await kept[0].readline()
            async with asyncio.timeout(10):
                while sum(gone := [reader.at_eof() for reader, _ in idle]) < metric(
                    service, "connections_shed_total"
                ):
                    await asyncio.sleep(0.01)
            for _, writer in [*idle, kept]:
                writer.close()
            return answered, gone

    answered, gone = asyncio.run(live())
    assert answered == [b"HTTP/1.1 200 OK\r\n"] * 4
    assert gone[0]
    assert gone == sorted(gone, reverse=True)  # the older ones first
    assert metric(service, "connections_shed_total") == sum(gone)
    assert metric(service, "connections") == 0


def test_callers_that_say_nothing_are_hung_up_on(monkeypatch):
    monkeypatch.setattr(protocol, "HEADER_S", 0.2)

    async def live() -> list[bytes]:
        async with listening(App(made_service())) as port:
            said = (b"", b"POST /decide HTTP/1.1\r\nHost:")
            return [await answer_to(port, one) for one in said]

    assert asyncio.run(live()) == [b"", b""]


@pytest.mark.parametrize(
    ("first", "drip"), [(b"", b"\r\n"), (BEGIN + b"A: ", b"x")], ids=["empty lines", "a head"]
)
def test_an_idle_caller_that_begins_to_drip_is_hung_up_on(monkeypatch, first, drip):
    monkeypatch.setattr(protocol, "HEADER_S", 0.3)

    async def live() -> bool:
        async with listening(App(made_service())) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(BEGIN + b"\r\n")
            await reader.readuntil(b"}")
            writer.write(first)
            is_gone = False
            for _ in range(100):
                await asyncio.sleep(0.1)
                is_gone = writer.transport.is_closing() or reader.at_eof()
                if is_gone:
                    break
                writer.write(drip)
            writer.close()
            return is_gone

    assert asyncio.run(live())


def test_who_is_turned_away_early_may_finish_and_ask_again(monkeypatch):
    monkeypatch.setattr(protocol, "HEADER_S", 0.8)
    service = made_service()

    async def live() -> list[bytes]:
        async with listening(App(service)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            service.loop_lag.stop()
            service.loop_lag.lag_s = 2 * service.config.deadline_s
            writer.write(QUESTION[:-20])
            lines = [await reader.readline()]
            await reader.readuntil(b"}")
            writer.write(QUESTION[-20:])
            await asyncio.sleep(1.0)
            service.loop_lag.lag_s = 0.0
            writer.write(QUESTION)
            lines.append(await reader.readline())
            writer.close()
            return lines

    assert asyncio.run(live()) == [b"HTTP/1.1 503 Service Unavailable\r\n", b"HTTP/1.1 200 OK\r\n"]


def test_idle_connections_stay_shorter_where_it_is_crowded(monkeypatch):
    monkeypatch.setattr(protocol, "CROWDED_KEEP_ALIVE_S", 0.2)

    async def live(limit: int, patience_s: float) -> bool:
        async with listening(App(made_service()), limit=limit) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(QUESTION)
            await reader.readline()
            try:
                async with asyncio.timeout(patience_s):
                    await reader.read()
                return True
            except TimeoutError:
                return False
            finally:
                writer.close()

    assert asyncio.run(live(limit=1, patience_s=10.0))
    assert not asyncio.run(live(limit=10, patience_s=0.6))


def test_who_does_not_take_an_answer_is_hung_up_on(monkeypatch):
    monkeypatch.setattr(protocol, "QUESTION_S", 0.5)
    service = made_service()
    large = json.dumps(
        {"Pod": pod(), "NodeNames": [f"{number}{'x' * 500}" for number in range(20_000)]}
    ).encode()

    async def live() -> float:
        async with listening(App(service)) as port:
            with socket.create_connection(("127.0.0.1", port)) as caller:
                caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                head = b"POST /filter HTTP/1.1\r\nHost: s\r\nContent-Length: %d\r\n\r\n" % len(large)
                await asyncio.to_thread(caller.sendall, head + large)
                for _ in range(100):
                    await asyncio.sleep(0.1)
                    if not metric(service, "connections"):
                        break
            return metric(service, "connections")

    assert asyncio.run(live()) == 0


def test_callers_that_never_finish_their_handshake_are_counted_and_shed(monkeypatch, tmp_path):
    monkeypatch.setattr(accepting, "HEADER_S", 2.0)
    service, context = made_service(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    async def live() -> tuple[int, float]:
        async with listening(App(service), limit=3, tls=context) as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(9)]
            num_shed = 0.0
            async with asyncio.timeout(10):
                while num_shed < 6:
                    await asyncio.sleep(0.01)
                    num_open, num_shed = (
                        metric(service, "connections"),
                        metric(service, "connections_shed_total"),
                    )
            for _, writer in silent:
                writer.close()
            return num_open, num_shed

    assert asyncio.run(live()) == (3, 6)
    assert metric(service, "connections") == 0


def test_the_limit_comes_from_the_system_and_is_raised_where_allowed(monkeypatch):
    limits, asked = [(1024, 4096)], []
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[0])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: asked.append(wanted))
    assert connection_limit() == connections.MAX_CONNECTIONS
    assert asked == [(connections.MAX_CONNECTIONS + connections.NUM_RESERVED, 4096)]
    limits[0] = (1024, 1024)
    assert connection_limit() == 1024 - connections.NUM_RESERVED
    limits[0] = (64, 64)
    assert connection_limit() == 32


def test_where_everybody_is_busy_the_new_one_is_refused(capsys):
    class Busy:
        def hang_up(self) -> None:
            raise AssertionError

    metrics = Metrics()
    book = Connections(2, metrics)
    callers = [Busy() for _ in range(5)]
    assert [book.enter(caller) for caller in callers] == [True, True, False, False, False]
    assert metrics.connections_refused._value.get() == 3
    book.leave(callers[0])
    assert book.enter(callers[4])
    assert capsys.readouterr().err.count("\n") == 1


def test_a_kind_of_line_is_said_once_in_a_while_with_the_number_left_out(capsys):
    now = [0.0]
    notices = Notices(lambda: now[0])
    for _ in range(1000):
        notices.write("crowd", "too many")
    notices.write("disk", "full")
    now[0] = AGAIN_S
    notices.write("crowd", "too many")
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "schedtwin serve: too many",
        "schedtwin serve: full",
        "schedtwin serve: too many (999 times more since the last such line)",
    ]


PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
sys.argv = ["schedtwin", "serve", sys.argv[1], "--port", "0", "--json"]
from evaluation.commands.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_crowd_larger_than_the_descriptors_locks_nobody_out(tmp_path):
    from tests.serving.bundles import make_bundle

    bundle = make_bundle(tmp_path / "bundle")
    command = [sys.executable, "-c", PROGRAM, str(bundle)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        port = int(json.loads(process.stdout.readline())["url"].rsplit(":", 1)[1])
        idle = []
        try:
            for _ in range(250):
                idle.append(socket.create_connection(("127.0.0.1", port), timeout=10))
                idle[-1].sendall(BEGIN + b"\r\n")
            answers = [asyncio.run(first_line(port)) for _ in range(10)]
        finally:
            for one in idle:
                one.close()
            process.terminate()
            said = process.communicate(timeout=20)[1].decode()
    assert answers == [b"HTTP/1.1 200 OK\r\n"] * 10
    assert "Traceback" not in said
    assert len(said.splitlines()) <= 3
