"""bench_allocator, as short as it can be: it measures every cell and every part, and says so."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = pathlib.Path(os.environ.get("BE_BIN", ROOT / "build/release/bin")) / "bench_allocator"
MIB = 1 << 20


class BenchAllocatorTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def run_program(self, *arguments):
        path = self.directory / "figures.json"
        run = subprocess.run([PROGRAM, *arguments, "--json", path, "--figures", self.directory],
                             capture_output=True, text=True, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(path.read_text(encoding="utf-8")), run.stdout

    def check_plot(self, name, figures):
        if not any("gnuplot is not installed" in note for note in figures["notes"]):
            self.assertIn("</svg>", (self.directory / name).read_text(encoding="utf-8"))

    def test_every_cell_and_part_has_figures(self):
        figures, text = self.run_program("--quick", "--loops", "1", "--repetitions", "1",
                                         "--seconds", "0.3")
        cells = {(cell["workload"], cell["threads"]): cell for cell in figures["cells"]}
        self.assertEqual(set(cells), {(workload, threads) for workload in ("LARGE", "SMALL")
                                      for threads in (1, 2, 4, 8)})
        for (workload, threads), cell in cells.items():
            self.assertLessEqual({"pool", "glibc"}, set(cell["allocators"]))
            least = threads * (40 if workload == "LARGE" else 12) * MIB
            for name, of in cell["allocators"].items():
                where = f"{name}, {workload}, {threads} threads: {of}"
                self.assertGreater(of["operations_per_cpu_second"]["median"], 1e3, where)
                self.assertGreater(of["peak_rss_bytes"]["median"], least, where)
            self.assertGreater(cell["allocators"]["pool"]["peak_registered_bytes"]["median"], least)
        self.assertLess(abs(figures["lookup"]["hot_ns"]), 100)
        self.assertEqual([part["workload"] for part in figures["producer_consumer"]],
                         ["LARGE", "SMALL"])
        for part in figures["producer_consumer"]:
            self.assertGreater(part["operations"], 100)
            self.assertGreater(part["registered_peak_bytes"], MIB)
        for bar in figures["bars"]:
            self.assertIn(bar["measured"], text)
        self.check_plot("fig4.svg", figures)

    def test_an_inference_run_samples_every_process(self):
        figures, _ = self.run_program("inference", "--seconds", "2", "--servers", "2")
        inference = figures["inference"]
        self.assertEqual([node["name"] for node in inference["nodes"]],
                         ["ranker", "server 0", "server 1"])
        for node in inference["nodes"]:
            self.assertGreater(len(node["registered_bytes"]), 1, node)
            self.assertGreater(node["registrations"][-1], 0, node)
        self.assertEqual(inference["service"]["transport"], "softnic")
        self.assertGreater(inference["service"]["requests"], 10)
        self.assertEqual(inference["service"]["failed_fetches"], 0)
        self.check_plot("fig5.svg", figures)

    def test_a_peer_that_is_no_library_is_refused_by_name(self):
        run = subprocess.run([PROGRAM, "--peer", "mine=/nowhere/lib.so"], capture_output=True,
                             text=True, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("mine=/nowhere/lib.so", run.stderr)


if __name__ == "__main__":
    unittest.main()
