"""What clients of `multimodel serve` wait: many at once, each sending one request after the other, for all tasks.

Starts the server over an export, sends the warm-up requests of the export over and over, and prints one JSON line for
each task and one for all: requests, errors, milliseconds, and the server's memory after a tenth of the time and at the
end.

    multimodel export runs/quickstart exports/quickstart
    python benchmarks/serve.py exports/quickstart --clients 64 --seconds 600
"""

import argparse
import base64
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import threading
import time
import urllib.parse

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@contextlib.contextmanager
def server(folder, *arguments):
    """A server over an export, on a free port: the address of its model, and its process."""
    command = [sys.executable, "-m", "multimodel", "serve", str(folder), "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if found := re.search(r"at (http://\S+)$", line):
                yield found[1], process
                break
        else:
            raise RuntimeError(f"no server: exit code {process.wait()}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=40)


def requests_of(folder):
    """`{task: body}` of an export's newest version: its warm-up requests."""
    from multimodel.serving.versions import newest, warmup_requests

    requests = {}
    for task, contents in warmup_requests(pathlib.Path(folder) / str(newest(folder))):
        values = [{"b64": base64.b64encode(content).decode()} for content in contents]
        requests[task] = json.dumps({"signature_name": task, "instances": values})
    return requests


def load(address, requests, clients, seconds):
    """Sends requests from so many clients at once.

    Returns:
        `({task: milliseconds of each}, errors, (bytes of memory after a tenth of the time, at the end))`.
    """
    url = urllib.parse.urlsplit(address)
    waited: dict[str, list] = {task: [] for task in requests}
    errors: list = []
    end = time.monotonic() + seconds

    def client(number):
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
        for task in itertools.islice(itertools.cycle(requests), number, None):
            if time.monotonic() > end:
                break
            begin = time.perf_counter()
            try:
                connection.request("POST", f"{url.path}:predict", requests[task])
                response = connection.getresponse()
                body = response.read()
                if response.status != 200:
                    errors.append((response.status, body[:200]))
            except OSError as error:
                errors.append((0, repr(error)))
                connection.close()
            waited[task].append((time.perf_counter() - begin) * 1e3)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 10)
    before = memory_of(url)
    for thread in threads:
        thread.join()
    return waited, errors, (before, memory_of(url))


def memory_of(url):
    """The server's resident bytes, by its own metrics; 0 where it cannot tell."""
    connection = http.client.HTTPConnection(url.hostname, url.port, timeout=120)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    found = re.search(r"^process_resident_memory_bytes (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def line_of(task, waited, seconds):
    return {
        "what": "serve",
        "task": task,
        "requests": len(waited),
        "requests_per_s": round(len(waited) / seconds, 1),
        "p50_ms": round(statistics.median(waited), 1),
        "p99_ms": round(sorted(waited)[int(0.99 * len(waited))], 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("export", help="the folder of an export")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    from multimodel import UserError

    try:
        requests = requests_of(options.export)
    except UserError as error:
        parser.error(str(error))
    with server(options.export) as (address, _):
        waited, errors, memory = load(address, requests, options.clients, options.seconds)
    for task, times in waited.items():
        print(json.dumps(line_of(task, times, options.seconds)), flush=True)
    everything = line_of("all", list(itertools.chain(*waited.values())), options.seconds)
    before, after = (round(size / 2**20) for size in memory)
    everything |= {"clients": options.clients, "errors": len(errors), "memory_mb": [before, after]}
    print(json.dumps(everything), flush=True)
    for error in errors[:5]:
        print(error, file=sys.stderr)


if __name__ == "__main__":
    main()
