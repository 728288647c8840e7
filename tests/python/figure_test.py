"""bench/figure: it runs with the program of this build, and writes every point of its figure."""

import csv
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench/figures"))

import perftest  # noqa: E402
import plans  # noqa: E402


class FigureTest(unittest.TestCase):
    def test_the_knee_is_the_smallest_fragment_near_the_most_throughput(self):
        self.assertEqual(plans.knee([(1024, 1.0), (2048, 9.6), (4096, 10.0), (8192, 9.9)]), 2048)
        self.assertEqual(plans.knee([(1024, 3.0)]), 1024)

    def test_perftest_is_read(self):
        report = """ #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 8192       23776            0.00              92.84  \t\t   0.011883
"""
        self.assertAlmostEqual(perftest.gigabytes_per_second(report), 0.09735, 5)

    def test_figure_8_has_all_sizes_over_both_transports(self):
        environment = {key: value for key, value in os.environ.items() if key != "BE_BIN"}
        program = os.path.join(os.environ["BE_BIN"], "byteexpress")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([ROOT / "bench/figure", "8", "--quick", "--program", program, "--out", folder],
                           check=True, stdout=subprocess.DEVNULL, env=environment)
            with open(os.path.join(folder, "figure08.csv"), encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
        points = [(row["device"], int(row["bytes"])) for row in rows]
        devices = ["softnic (software RNIC)", "kernel TCP"]
        self.assertEqual(points, [(device, size) for device in devices for size in plans.SIZES_8])
        for row in rows:
            self.assertGreater(float(row["mean_us"]), 0)
            self.assertGreaterEqual(float(row["max_us"]), float(row["p99_us"]))


if __name__ == "__main__":
    unittest.main()
