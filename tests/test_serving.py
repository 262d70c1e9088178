"""The server: TF Serving's forms and errors, batches, limits, new versions, and clients that do it wrong."""

import asyncio
import base64
import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

import numpy as np
import pytest

from benchmarks import serve as load_test
from multimodel.cli import run_command
from multimodel.export.exported import UnreadableRowError
from multimodel.serving.batching import Batcher, Queue
from multimodel.serving.limits import Limits
from multimodel.serving.metrics import Metrics
from multimodel.serving.server import make_server
from multimodel.serving.versions import Model
from multimodel.serving.wire import RefusedError
from tests import tiny_recipe
from tests.hearing_recipe import CONTENTS, png


@contextlib.contextmanager
def running(folder, limits, name="tiny"):
    """A server in a thread of this process: its Model and its port."""
    metrics = Metrics()
    model = Model(folder, name, limits, metrics)
    server = make_server(model, limits, metrics)
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield model, listening.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture(scope="module")
def port(hearing_export):
    with running(hearing_export[0], Limits(body_mb=2, read_seconds=1.5)) as (_, port):
        yield port


def ask(port, method, path, body=None, **headers):
    """Status, headers and JSON of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    content = response.read()
    connection.close()
    is_json = response.headers["content-type"].startswith("application/json")
    return response.status, dict(response.headers), json.loads(content) if is_json else content.decode()


def predict(port, request, path="/v1/models/tiny:predict"):
    body = request if isinstance(request, bytes) else json.dumps(request)
    status, _, answer = ask(port, "POST", path, body)
    return status, answer


def b64(content):
    return {"b64": base64.b64encode(content).decode()}


def test_status_and_metadata(port):
    status, _, answer = ask(port, "GET", "/v1/models/tiny")
    state = {"version": "1", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    assert (status, answer) == (200, {"model_version_status": [state]})
    assert ask(port, "GET", "/v1/models/tiny/versions/1")[2] == answer
    status, _, answer = ask(port, "GET", "/v1/models/tiny/metadata")
    assert status == 200
    assert answer["model_spec"] == {"name": "tiny", "signature_name": "", "version": "1"}
    signatures = answer["metadata"]["signature_def"]["signature_def"]
    assert set(CONTENTS) <= set(signatures)
    assert signatures["colours"]["inputs"]["inputs"]["dtype"] == "DT_STRING"
    assert signatures["colours"]["inputs"]["inputs"]["tensor_shape"]["dim"] == [{"size": "-1", "name": ""}]
    assert signatures["colours"]["method_name"] == "tensorflow/serving/predict"
    assert set(signatures["colours"]["outputs"]) == {"outputs", "scores", "probabilities", "labels"}
    assert ask(port, "GET", "/v1/models/tiny/versions/1/metadata")[2] == answer


@pytest.mark.parametrize("task", CONTENTS)
def test_rows_and_columns_are_what_the_export_answers(port, hearing_loaded, task):
    expected = hearing_loaded.try_predict(task, CONTENTS[task])
    outputs = [prediction.output for prediction in expected]
    scores = [prediction.score for prediction in expected]
    values = [b64(content) for content in CONTENTS[task]]
    if task == "upper":
        values[0] = CONTENTS[task][0].decode()
    forms = ({"instances": values}, {"instances": [{"inputs": value} for value in values]})
    for form in forms:
        status, answer = predict(port, {"signature_name": task} | form)
        assert status == 200
        assert [row["outputs"] for row in answer["predictions"]] == outputs
        np.testing.assert_allclose([row["scores"] for row in answer["predictions"]], scores, atol=1e-4)
    for form in ({"inputs": values}, {"inputs": {"inputs": values}}):
        status, answer = predict(port, {"signature_name": task} | form, "/v1/models/tiny/versions/1:predict")
        assert status == 200
        assert answer["outputs"]["outputs"] == outputs
    if task == "colours":
        assert answer["outputs"]["labels"] == [list(tiny_recipe.COLOURS)] * 3
        assert np.shape(answer["outputs"]["probabilities"]) == (3, 3)


def huge_png():
    """50,000 x 50,000 pixels by its header, in 100 bytes."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(10_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


GOOD = b64(png((255, 0, 0)))
BAD = {
    "no JSON": (b"{", 400, "JSON Parse error"),
    "no UTF-8": (b'{"signature_name": "upper", "instances": ["\xff"]}', 400, "JSON is UTF-8"),
    "another constant": (b'{"signature_name": "upper", "instances": [NaN]}', 400, "NaN"),
    "deep nesting": (b"[" * 100_000, 400, "JSON Parse error"),
    "empty": (b"", 400, "JSON Parse error"),
    "a list": ([1], 400, "a JSON object"),
    "no task": ({"instances": ["x"]}, 400, "signature_name"),
    "unknown task": ({"signature_name": "uper", "instances": ["x"]}, 400, '"uper" not found'),
    "task of another type": ({"signature_name": {"a": 1}, "instances": ["x"]}, 400, "not found"),
    "no values": ({"signature_name": "upper"}, 400, "either instances or inputs"),
    "both forms": ({"signature_name": "upper", "instances": ["x"], "inputs": ["x"]}, 400, "either"),
    "an empty list": ({"signature_name": "upper", "instances": []}, 400, "at least one"),
    "no list": ({"signature_name": "upper", "instances": "x"}, 400, "a list"),
    "a number": ({"signature_name": "upper", "instances": ["x", 3]}, 400, "row 1: a value is a string"),
    "a list in a list": ({"signature_name": "upper", "inputs": ["x", ["y"]]}, 400, "row 1: "),
    "another key": ({"signature_name": "upper", "instances": ["x", {"text": "y"}]}, 400, "row 1: "),
    "no base64": ({"signature_name": "colours", "instances": [GOOD, {"b64": "!"}]}, 400, "row 1: b64"),
    "half a surrogate": (b'{"signature_name": "upper", "instances": ["\\ud800"]}', 400, "row 0: text is Unicode"),
    "bytes that are no text": (
        {"signature_name": "upper", "instances": ["x", b64(b"\xff")]},
        400,
        "row 1: text is not",
    ),
    "no picture": ({"signature_name": "colours", "instances": [GOOD, GOOD, "x"]}, 400, "row 2: not a PNG"),
    "half a picture": ({"signature_name": "colours", "inputs": [b64(png((1, 2, 3))[:50])]}, 400, "row 0: damaged"),
    "a huge picture": ({"signature_name": "colours", "instances": [GOOD, b64(huge_png())]}, 400, "row 1: a picture of"),
    "no clip": ({"signature_name": "tones", "instances": [GOOD]}, 400, "row 0: not a WAV"),
    "too many rows": ({"signature_name": "upper", "instances": ["x"] * 1025}, 400, "at most 1024 rows"),
    "too large": (b" " * 2**25, 413, "at most 2 MiB"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests(port, name):
    request, status, message = BAD[name]
    given, answer = predict(port, request)
    assert given == status
    assert list(answer) == ["error"]
    assert message in answer["error"]
    assert predict(port, {"signature_name": "colours", "instances": [GOOD]})[0] == 200


def test_a_client_that_asks_first_sends_nothing_too_large(port):
    lines = ("POST /v1/models/tiny:predict HTTP/1.1", "Host: x", "Content-Length: 99999999", "Expect: 100-continue")
    # The time is less than the server waits for a body.
    with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        assert connection.recv(100).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/models/other", 404),
        ("GET", "/v1/models/tiny/versions/9", 404),
        ("GET", "/v1/models/tiny/versions/x", 400),
        ("GET", "/v1/models/tiny/versions/9/metadata", 404),
        ("POST", "/v1/models/other:predict", 404),
        ("POST", "/v1/models/tiny/versions/7:predict", 404),
        ("POST", "/v1/models/tiny:classify", 405),
        ("DELETE", "/v1/models/tiny", 405),
        ("GET", "/nothing", 404),
    ],
)
def test_bad_addresses(port, method, path, status):
    given, _, answer = ask(port, method, path)
    assert given == status
    assert list(answer) == ["error"]


def test_a_hundred_megabytes_are_refused_before_they_are_read(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest("POST", "/v1/models/tiny:predict")
    connection.putheader("Content-Length", str(100 * 2**20))
    connection.endheaders()
    assert connection.getresponse().status == 413  # though nothing of it was sent
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.request("POST", "/v1/models/tiny:predict", (bytes(2**16) for _ in range(100)), encode_chunked=True)
    with contextlib.suppress(ConnectionResetError):
        assert connection.getresponse().status == 413  # of a length that is not told


def test_slow_clients_are_let_go(port):
    slow = {
        "nothing": b"",
        "half a header": b"POST /v1/models/tiny:predict HTTP/1.1\r\nHost: x\r\n",
        "half a body": b"POST /v1/models/tiny:predict HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{",
    }
    connections = {}
    for name, content in slow.items():
        connections[name] = socket.create_connection(("127.0.0.1", port), timeout=20)
        connections[name].sendall(content)
    assert predict(port, {"signature_name": "colours", "instances": [GOOD]})[0] == 200
    for name, connection in connections.items():
        answer = b""
        while part := connection.recv(4096):  # until the server closes
            answer += part
        assert (b" 408 " in answer) == (name == "half a body")


def test_a_full_queue_refuses(port):
    """Rows gather while a batch is computed; a bad one costs its own request alone."""
    begun, batches = threading.Event(), []

    def run(contents):
        begun.wait(10)
        batches.append(contents)
        if b"bad" in contents:
            raise UnreadableRowError(contents.index(b"bad"), "broken")
        return {"outputs": np.array(contents, object), "scores": np.zeros(len(contents))}

    async def clients():
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            batcher = Batcher(run, 4, Queue(6), pool)
            first = asyncio.create_task(batcher.answer([b"a"]))
            await asyncio.sleep(0.05)  # its batch is taken
            requests = [[b"b"], [b"c", b"bad", b"d"], [b"e"]]
            others = [asyncio.create_task(batcher.answer(contents)) for contents in requests]
            await asyncio.sleep(0.05)
            with pytest.raises(RefusedError, match="Too many rows wait") as full:
                await batcher.answer([b"f", b"g"])
            assert (full.value.status, full.value.headers) == (429, {"Retry-After": "1"})
            gone = asyncio.create_task(batcher.answer([b"gone"]))
            await asyncio.sleep(0.05)
            gone.cancel()
            begun.set()
            results = await asyncio.gather(first, *others, return_exceptions=True)
            await batcher.finish()
            return results

    first, b, bad, e = asyncio.run(clients())
    assert [rows[0]["outputs"] for rows in (first, b, e)] == ["a", "b", "e"]
    assert (bad.status, str(bad)) == (400, "row 1: broken")
    assert batches == [[b"a"], [b"b", b"c", b"bad", b"d"], [b"b"], [b"e"]]


def test_health_and_metrics(port):
    assert ask(port, "GET", "/health")[2] == {"status": "ok", "version": 1}
    predict(port, {"signature_name": "upper", "instances": ["x"] * 3})
    predict(port, {"signature_name": "upper", "instances": [3]})
    text = ask(port, "GET", "/metrics")[2]
    for name in ('requests_total{code="200",task="upper"}', 'requests_total{code="400",task="upper"}'):
        assert f"multimodel_{name}" in text
    for name in ("request_seconds_bucket", "batch_rows_bucket", "queued_rows 0.0", "version 1.0"):
        assert f"multimodel_{name}" in text


def test_a_new_version_replaces_the_old_one_under_load(hearing_export, tmp_path):
    folder = tmp_path / "tiny"
    shutil.copytree(hearing_export[0] / "1", folder / "1")
    with running(folder, Limits()) as (model, port):
        failures, stop = [], threading.Event()

        def client():
            while not stop.is_set():
                answer = predict(port, {"signature_name": "upper", "instances": ["ab"]})
                if answer[0] != 200:
                    failures.append(answer)

        threads = [threading.Thread(target=client) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            shutil.copytree(hearing_export[0] / "1", tmp_path / "draft")
            (tmp_path / "draft").rename(folder / "2")
            wait_for(lambda: ask(port, "GET", "/health")[2]["version"] == 2)
            (folder / "3").mkdir()
            (folder / "3" / "saved_model.pb").write_bytes(b"of no kind")
            wait_for(lambda: model.states.get(3, ("",))[0] == "END")
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert not failures
        assert ask(port, "GET", "/health")[2]["version"] == 2
        states = {one["version"]: one for one in ask(port, "GET", "/v1/models/tiny")[2]["model_version_status"]}
        assert {version: one["state"] for version, one in states.items()} == {"1": "END", "2": "AVAILABLE", "3": "END"}
        assert "An export's folder is whole" in states["3"]["status"]["error_message"]


def wait_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_fuzzing_finds_no_internal_error(port):
    """Schemathesis, on the server's own description of itself."""
    command = [pathlib.Path(sys.executable).with_name("st"), "run", f"http://127.0.0.1:{port}/openapi.json"]
    checks = "not_a_server_error,status_code_conformance,response_schema_conformance,content_type_conformance"
    command += ["--checks", checks, "--max-examples", "30", "--seed", "1", "--phases", "examples,coverage,fuzzing"]
    environment = os.environ | {"NO_COLOR": "1"}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]


def test_many_clients_for_a_while_and_a_graceful_stop(hearing_export):
    """20 seconds of 64 clients; then SIGTERM, after which requests at hand are still answered."""
    requests = load_test.requests_of(hearing_export[0])
    assert set(requests) == set(CONTENTS)
    with load_test.server(hearing_export[0], "--name", "mine") as (address, process):
        assert address.endswith("/v1/models/mine")
        waited, errors, (before, after) = load_test.load(address, requests, 64, 20)
        connection = http.client.HTTPConnection(address.split("/")[2], timeout=60)
        body = json.dumps({"signature_name": "upper", "instances": ["ab"] * 500})
        connection.request("POST", "/v1/models/mine:predict", body)
        time.sleep(0.1)
        process.send_signal(signal.SIGTERM)
        response = connection.getresponse()
        assert response.status == 200
        assert len(json.loads(response.read())["predictions"]) == 500
        assert process.wait(30) in (0, -signal.SIGTERM, 128 + signal.SIGTERM)
    assert errors == []
    assert min(map(len, waited.values())) > 10
    assert after < 1.2 * before


def test_mistakes(hearing_export, tmp_path, capsys):
    taken = socket.create_server(("127.0.0.1", 0))
    folder = str(hearing_export[0])
    mistakes = {
        ("serve", str(tmp_path)): "A folder to serve holds a numbered version",
        ("serve", folder, "--port", str(taken.getsockname()[1])): "Choose another --port",
        ("serve", folder, "--host", "256.1.1.1"): "Choose another --port or --host",
        ("serve", folder, "--port", "0", "--queue", "0"): "rows is above 0",
    }
    for arguments, message in mistakes.items():
        assert run_command(list(arguments)) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1
