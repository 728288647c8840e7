"""Figure 11: 512 B messages a second over the number of queue pairs, by bench_message_rate."""

import json
import os
import statistics
import subprocess

from output import Curve
from runs import Failed, run_in_turn

QUEUE_PAIRS = [1, 8, 16, 32, 64, 128, 256]
THREADS = [1, 2, 4, 8]
FIGURES = ["messages_per_second", "contended_posts_per_second", "cpu_us_per_message"]
COLUMNS = ["threads", "thread_domains", "queue_pairs", *FIGURES]


class Run:
    def __init__(self, queue_pairs, threads, domains, seconds):
        self.key = {"threads": threads, "thread_domains": domains, "queue_pairs": queue_pairs}
        self.name = f"{queue_pairs} queue pairs, {threads} threads, thread domains: {domains}"
        self._arguments = ["--queue-pairs", str(queue_pairs), "--threads", str(threads), "--seconds",
                           str(seconds), *([] if domains else ["--no-domains"])]
        self._results = []

    def run(self, program):
        command = [os.path.join(os.path.dirname(program), "bench_message_rate"), *self._arguments]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise Failed("failed: " + " ".join(command))
        self._results.append(json.loads(done.stdout))

    def row(self):
        return {**self.key, **{figure: statistics.median(one[figure] for one in self._results)
                               for figure in FIGURES}}


def seconds_of(duration):
    # "500ms", "2s"
    return (float(duration.removesuffix("ms")) / 1000 if duration.endswith("ms")
            else float(duration.removesuffix("s")))


def measure(options):
    if options.rxe:
        raise Failed("rxe has no thread domains: figure 11 is softnic's")
    seconds = seconds_of(options.duration)
    runs = [Run(queue_pairs, threads, domains, seconds)
            for queue_pairs in QUEUE_PAIRS for threads in THREADS for domains in (True, False)
            if queue_pairs >= threads]
    run_in_turn(options.program, runs, options.repetitions)
    return [run.row() for run in runs]


def curves_of(rows):
    curves = []
    for colour, threads in enumerate(THREADS):
        for domains in (True, False):
            curve = [(row["queue_pairs"], row["messages_per_second"] / 1e6) for row in rows
                     if row["threads"] == threads and row["thread_domains"] == domains]
            label = "thread domains" if domains else "shared locks (modelled)"
            plural = "" if threads == 1 else "s"
            curves.append(Curve(f"{threads} thread{plural}, {label}", curve, dashed=not domains,
                                colour=colour))
    return curves


def contention(rows):
    worst = max((row for row in rows if not row["thread_domains"]),
                key=lambda row: row["contended_posts_per_second"])
    return (f"Without thread domains softnic shares four posting locks among all queue pairs: a modelled "
            f"lock. At most {worst['contended_posts_per_second']:.0f} posts a second met it taken "
            f"({worst['threads']} threads, {worst['queue_pairs']} queue pairs).")
