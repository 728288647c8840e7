"""Runs of `byteexpress perf` between two processes of this host, and medians over them."""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile


class Failed(Exception):
    pass


def server_address():
    """Where servers listen: in the Soft-RoCE guest at rxe's address."""
    return os.environ.get("RXE_ADDRESS_0", "127.0.0.1")


def environment():
    return {**os.environ, "BE_TRANSPORT_SECRET": "bench/figure"}  # else loopback only


class Server:
    """`byteexpress perf server`, until it is left."""

    def __init__(self, program, arguments):
        self._process = subprocess.Popen(
            [program, "perf", "server", "--listen", server_address() + ":0", *arguments],
            stdout=subprocess.PIPE, text=True, env=environment())
        line = self._process.stdout.readline()
        if not line.startswith("ready "):
            self._process.wait()
            raise Failed("the perf server did not start")
        self.address = line.split()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate()


def client(program, address, arguments):
    """The JSON of one client with one repetition."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "perf.json")
        command = [program, "perf", "client", address, "--repetitions", "1", "--json", path, *arguments]
        outcome = subprocess.run(command, stdout=subprocess.DEVNULL, env=environment(), check=False)
        if outcome.returncode != 0:
            raise Failed("failed: " + " ".join(command))
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def sets(settings):
    """{"engine.fragment_bytes": "4KiB"} as arguments."""
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


class Case:
    """One way of running: its arguments for both ends, and what was measured so far."""

    def __init__(self, transport, test, settings):
        self.name = f"{transport} {' '.join(test)} {settings or ''}"
        self.both = ["--transport", transport, *sets(settings)]
        self.test = test
        self.device = ""
        self.figures = {}  # bytes -> [figures of one run]

    def run(self, program):
        with Server(program, self.both) as server:
            result = client(program, server.address, self.both + self.test)
        self.device = result["device"]
        for size in result["sizes"]:
            self.figures.setdefault(size["bytes"], []).append(size["repetitions"][0])

    def median(self, size, figure):
        return statistics.median(one[figure] for one in self.figures[size])


def run_in_turn(program, cases, repetitions):
    """Cases alternate within a repetition, so that a disturbance of the machine meets all."""
    for repetition in range(1, repetitions + 1):
        for case in cases:
            if sys.stderr.isatty():
                print(f"\r\033[Krepetition {repetition} of {repetitions}: {case.name}",
                      end="", file=sys.stderr, flush=True)
            case.run(program)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)
