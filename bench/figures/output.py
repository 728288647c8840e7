"""CSV and SVG (by gnuplot) of one figure, with the machine and the command under it."""

import csv
import datetime
import os
import platform
import shutil
import subprocess
import textwrap

from runs import Failed

COLOURS = ["#d62728", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#7f7f7f"]


def machine():
    cpu = "unknown CPU"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return f"{os.cpu_count()} cores of {cpu}, Linux {platform.release()}, {now}"


def number(value):
    return f"{value:.5g}" if isinstance(value, float) else value


def write_csv(path, columns, rows):
    with open(path + ".tmp", "w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, columns, lineterminator="\n")
        out.writeheader()
        out.writerows({column: number(value) for column, value in row.items()} for row in rows)
    os.replace(path + ".tmp", path)


class Curve:
    def __init__(self, title, points, dashed=False, colour=0):
        self.title = title
        self.points = points
        self.dashed = dashed
        self.colour = colour


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def draw(path, title, axes, curves, notes):
    """`axes`: gnuplot lines for labels and scales. Without gnuplot nothing is drawn."""
    if shutil.which("gnuplot") is None:
        print("no gnuplot: no picture")
        return
    notes = [line for note in notes for line in textwrap.wrap(note, 130)]
    script = [
        "set terminal svg size 900,600 font 'DejaVu Sans,12' background '#ffffff'",
        f"set output {quoted(path + '.tmp')}",
        f"set title {quoted(title)}",
        "set grid ytics lc '#dddddd'", "set border 3", "set tics nomirror",
        f"set bmargin {6 + len(notes)}", "set key top left Left reverse", *axes,
    ]
    for i, note in enumerate(notes):
        script.append(f"set label {100 + i} {quoted(note)} at screen 0.02, "
                      f"char {0.9 + 1.0 * (len(notes) - 1 - i)} font ',10' textcolor '#555555' noenhanced")
    for i, curve in enumerate(curves):
        script.append(f"$c{i} << EOD")
        script += [f"{x} {y}" for x, y in curve.points]
        script.append("EOD")
    plots = [
        f"$c{i} using 1:2 with linespoints title {quoted(curve.title)} noenhanced lw 2 pt 7 ps 0.6 "
        f"dt {2 if curve.dashed else 1} lc '{COLOURS[curve.colour % len(COLOURS)]}'"
        for i, curve in enumerate(curves)
    ]
    script.append("plot " + ", ".join(plots))
    done = subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True,
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise Failed("gnuplot: " + done.stderr.strip())
    os.replace(path + ".tmp", path)
