"""The paper's figures that `byteexpress perf` can show on one machine.

Each is measured as rows (dictionaries of plain values, what the CSV has), and drawn from rows only: a
guest measures where it is and hands its rows out.

    Figure(title, columns, measure(options) -> rows, draw(rows) -> Picture)

softnic beside kernel TCP on the host; in the Soft-RoCE guest (options.rxe) rxe beside kernel TCP.
"""

import dataclasses
import typing

import message_rate
import perftest
from output import Curve
from runs import Case, run_in_turn, server_address

SIZES_8 = [32 << i for i in range(10)]  # 32 B to 16 KiB
MESSAGE = 1 << 20
OUTSTANDING_9 = [1, 2, 4, 8, 16]
FRAGMENTS_10 = [1 << i for i in range(10, 21)]  # 1 KiB to 1 MiB
FLOWS_13 = [0, 1, 2, 4, 8, 16]
LINK_RATES = ["25Gbps", "100Gbps"]
X_BYTES = ["set logscale x 2", "set format x '%.0b%BB'"]


@dataclasses.dataclass
class Picture:
    axes: list  # gnuplot lines
    curves: list
    notes: list


@dataclasses.dataclass
class Figure:
    title: str
    columns: list
    measure: typing.Callable
    draw: typing.Callable


def transports(options):
    return ["rdma" if options.rxe else "softnic", "tcp"]


def links(options):
    """Name and softnic.link_rate of each link to measure on."""
    return {"rxe": None} if options.rxe else {"unpaced": None, **{rate: rate for rate in LINK_RATES}}


def timing(options):
    return ["--duration", options.duration, "--warmup", options.warmup]


def case(options, transport, test, settings=None):
    settings = dict(settings or {})
    if options.polling:
        settings["transport.spin_forever"] = "true"
    if options.rxe:  # an emulated guest on a busy machine may stand still for seconds
        settings |= {"transport.handshake_timeout": "60s", "engine.keepalive_timeout": "60s"}
    return Case(transport, [*test, *timing(options)], settings)


def measured(options, cases, size_of, figures):
    """Rows of {key column: value} -> Case, with the medians of `figures`."""
    run_in_turn(options.program, [one for _, one in cases], options.repetitions)
    return [{**key, "device": one.device, **{figure: one.median(size_of(key), figure) for figure in figures}}
            for key, one in cases]


def points(rows, x, y, **where):
    return [(row[x], row[y]) for row in rows
            if all(row[column] == value for column, value in where.items())]


def values(rows, column):
    return list(dict.fromkeys(row[column] for row in rows))


# --- 8: latency over message size, one outstanding ---

TIMES = ["mean_us", "p50_us", "p99_us", "max_us"]
CPU_OF_ENDS = ["client_cpu_us_per_message", "server_cpu_us_per_message"]


def measure_8(options):
    rows = []
    ways = [case(options, name, ["--test", "latency", "--sizes", "32..16KiB"])
            for name in transports(options)]
    run_in_turn(options.program, ways, options.repetitions)
    for way in ways:
        rows += [{"device": way.device, "bytes": size,
                  **{figure: way.median(size, figure) for figure in TIMES + CPU_OF_ENDS}}
                 for size in SIZES_8]
    return rows


def draw_8(rows):
    curves = [Curve(f"{device}, {label}", points(rows, "bytes", figure, device=device),
                    dashed=figure == "p99_us", colour=colour)
              for colour, device in enumerate(values(rows, "device"))
              for label, figure in (("mean", "mean_us"), ("P99", "p99_us"))]
    return Picture(X_BYTES + ["set logscale y", "set xlabel 'message'", "set ylabel 'us'"], curves,
                   ["The paper has eRPC beside it, on 25 and 100 Gbps; its text gives no numbers."])


# --- 9: throughput of 1 MiB messages on one queue pair ---


def measure_9(options):
    settings = {"engine.send_window_bytes": 0}
    touch = ["--no-touch"] if options.rxe else []  # perftest touches nothing
    cases = [({"transport": name, "outstanding": outstanding},
              case(options, name, ["--test", "bandwidth", "--sizes", str(MESSAGE), *touch,
                                   "--outstanding", str(outstanding)], settings))
             for outstanding in OUTSTANDING_9 for name in transports(options)]
    peers = perftest.cases(options, server_address()) if options.rxe else []
    run_in_turn(options.program, [one for _, one in cases] + peers, options.repetitions)
    figures = ["gigabytes_per_second", "cpu_seconds_per_gigabyte", "mean_us", "p99_us"]
    rows = [{"device": one.device, "outstanding": key["outstanding"],
             **{figure: one.median(MESSAGE, figure) for figure in figures}} for key, one in cases]
    return rows + [{"device": peer.name, "outstanding": outstanding,
                    "gigabytes_per_second": peer.median()}
                   for peer in peers for outstanding in OUTSTANDING_9]


def draw_9(rows):
    devices = values(rows, "device")
    curves = [Curve(device, points(rows, "outstanding", "gigabytes_per_second", device=device),
                    dashed=device.startswith("ib_"), colour=colour)
              for colour, device in enumerate(devices)]
    notes = ["The paper has eRPC and perftest RC / UD beside it, on links of 25 to 200 Gbps."]
    best = {device: max(y for _, y in points(rows, "outstanding", "gigabytes_per_second", device=device))
            for device in devices}
    for device in devices:
        if device.startswith("ib_write_bw"):
            notes.insert(0, f"{devices[0]}: {best[devices[0]] / best[device]:.2f} of {device}. "
                            "Payloads are not touched here, as perftest touches none.")
    return Picture(["set logscale x 2", "set yrange [0:*]", "set xlabel 'messages outstanding'",
                    "set ylabel 'GB/s'"], curves, notes)


# --- 10: throughput over fragment size ---


def measure_10(options):
    test = ["--test", "bandwidth", "--sizes", str(MESSAGE)]
    cases = []
    for fragment in FRAGMENTS_10:
        for link, rate in links(options).items():
            settings = {"engine.fragment_bytes": fragment, "engine.send_window_bytes": 0}
            if rate is not None:
                settings["softnic.link_rate"] = rate
            cases.append(({"link": link, "fragment_bytes": fragment},
                          case(options, transports(options)[0], test, settings)))
    return measured(options, cases, lambda _: MESSAGE,
                    ["gigabytes_per_second", "cpu_seconds_per_gigabyte"])


def knee(curve):
    """The smallest fragment with 95 % of the most throughput."""
    most = max(rate for _, rate in curve)
    return next(fragment for fragment, rate in curve if rate >= 0.95 * most)


def draw_10(rows):
    curves, knees = [], []
    for colour, link in enumerate(values(rows, "link")):
        curve = points(rows, "fragment_bytes", "gigabytes_per_second", link=link)
        knees.append(f"{link} {knee(curve) >> 10} KiB")
        curves.append(Curve(link, curve, colour=colour))
    return Picture(X_BYTES + ["set yrange [0:*]", "set xlabel 'fragment'", "set ylabel 'GB/s'"], curves,
                   [f"On {rows[0]['device']}. Smallest fragment with 95 % of the most: "
                    + ", ".join(knees) + "; defaults: softnic 64 KiB, NICs 8 KiB.",
                    "The paper, on NICs: about 2 KB saturates 25 Gbps, more than 8 KB nearly 100 Gbps."])


# --- 11: message rate over the number of queue pairs ---


def draw_11(rows):
    return Picture(["set logscale x 2", "set yrange [0:*]", "set xlabel 'queue pairs'",
                    "set ylabel 'M messages/s'"], message_rate.curves_of(rows),
                   [message_rate.contention(rows),
                    "Not a reproduction: the paper has a NIC and a core for each of its eight threads."])


# --- 13: a small flow beside large flows of one engine ---


def measure_13(options):
    cases = []
    for flows in FLOWS_13:
        test = ["--test", "latency", "--sizes", "32", "--background", str(flows)]
        for link, rate in links(options).items():
            if link == "unpaced":
                continue
            for name, fragment in (("4 KiB", "4KiB"), ("none (1 MiB)", "1MiB")):
                settings = {"engine.fragment_bytes": fragment, "engine.send_window_bytes": 0,
                            "engine.grants": 40, "engine.write_requests": 40}
                if rate is not None:
                    settings["softnic.link_rate"] = rate
                cases.append(({"link": link, "fragments": name, "large_flows": flows},
                              case(options, transports(options)[0], test, settings)))
    return measured(options, cases, lambda _: 32,
                    ["mean_us", "p50_us", "p99_us", "background_gigabytes_per_second"])


def draw_13(rows):
    curves = [Curve(f"{link}, fragments: {fragments}",
                    points(rows, "large_flows", "mean_us", link=link, fragments=fragments),
                    dashed=dashed == 1, colour=colour)
              for colour, link in enumerate(values(rows, "link"))
              for dashed, fragments in enumerate(values(rows, "fragments"))]
    return Picture(["set logscale y", "set xlabel 'large flows'", "set ylabel 'us'"], curves,
                   [f"On {rows[0]['device']}; each large flow has two messages on their way."])


FIGURES = {
    8: Figure("message latency, one outstanding, replies of 32 B",
              ["device", "bytes", *TIMES, *CPU_OF_ENDS], measure_8, draw_8),
    9: Figure("throughput of 1 MiB messages on one queue pair, replies of 32 B",
              ["device", "outstanding", "gigabytes_per_second", "cpu_seconds_per_gigabyte", "mean_us",
               "p99_us"], measure_9, draw_9),
    10: Figure("throughput over fragment size, 1 MiB messages, 4 outstanding, one queue pair",
               ["device", "link", "fragment_bytes", "gigabytes_per_second", "cpu_seconds_per_gigabyte"],
               measure_10, draw_10),
    11: Figure("512 B message rate over queue pairs, softnic with thread domains or without",
               message_rate.COLUMNS, message_rate.measure, draw_11),
    13: Figure("mean latency of a 32 B flow beside flows of 1 MiB messages on one engine",
               ["device", "link", "fragments", "large_flows", "mean_us", "p50_us", "p99_us",
                "background_gigabytes_per_second"], measure_13, draw_13),
}
