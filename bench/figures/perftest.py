"""perftest's ib_write_bw and ib_send_bw on the guest's rxe0, as beside the engine in one run."""

import statistics
import subprocess
import time

from runs import Failed

FRAGMENT = 8192  # the engine's on NICs
DEPTH = 32       # engine.send_queue_depth
UD_BYTES = 4096  # a datagram is one packet


def gigabytes_per_second(report):
    """Of the line `#bytes #iterations peak average rate`; its MB are MiB, its JSON is none."""
    for line in report.splitlines():
        words = line.split()
        if len(words) == 5 and words[0].isdigit():
            return float(words[3]) * (1 << 20) / 1e9
    raise Failed("perftest said: " + report)


class Perftest:
    def __init__(self, name, command, seconds, address):
        self.name = name
        self._command = [*command, "-d", "rxe0", "-x", "1", "-t", str(DEPTH), "-D", str(seconds), "-F"]
        self._address = address
        self._rates = []

    def run(self, _program):
        server = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        try:
            self._rates.append(self._client())
        finally:
            server.wait(60)

    def _client(self):
        for _ in range(50):  # until the server listens
            done = subprocess.run([*self._command, self._address], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return gigabytes_per_second(done.stdout)
            time.sleep(0.2)
        raise Failed(f"failed: {' '.join(self._command)}: {done.stderr.strip()}")

    def median(self):
        return statistics.median(self._rates)


def cases(options, address):
    seconds = 2 if options.quick else 3
    return [Perftest(f"{program}, {kind} of {size} B, depth {DEPTH}",
                     [program, "-s", str(size), *more], seconds, address)
            for program, kind, size, more in (("ib_write_bw", "RC", FRAGMENT, []),
                                              ("ib_send_bw", "RC", FRAGMENT, []),
                                              ("ib_send_bw", "UD", UD_BYTES, ["-c", "UD"]))]
