"""The paper's figures that `byteexpress perf` can show on one host: softnic beside kernel TCP."""

import output
from runs import Case, run_in_turn

SIZES_8 = [32 << i for i in range(10)]  # 32 B to 16 KiB
MESSAGE = 1 << 20
FRAGMENTS = [1 << i for i in range(10, 21)]  # 1 KiB to 1 MiB
FLOWS = [0, 1, 2, 4, 8, 16]
LINK_RATES = ["25Gbps", "100Gbps"]
WAITING = {False: {}, True: {"transport.spin_forever": "true"}}
X_BYTES = ["set logscale x 2", "set format x '%.0b%BB'"]


def timing(options):
    return ["--duration", options.duration, "--warmup", options.warmup]


def finish(options, number, columns, rows, title, axes, curves, notes):
    path = f"{options.out}/figure{number:02d}"
    waiting = "both ends poll" if options.polling else "default waiting"
    notes = notes + [
        f"Medians of {options.repetitions} runs of {options.duration}; {waiting}; payloads touched. "
        "softnic is a software RNIC.",
        output.machine(),
        f"bench/figure {number}" + (" --polling" if options.polling else ""),
    ]
    output.write_csv(path + ".csv", columns, rows)
    output.draw(path + ".svg", title, axes, curves, notes)
    print(path + ".csv")
    for note in notes:
        print("  " + note)


def figure8(options):
    """Latency over message size, one outstanding: mean and P99."""
    test = ["--test", "latency", "--sizes", "32..16KiB", *timing(options)]
    cases = [Case(name, name, test, WAITING[options.polling]) for name in ("softnic", "tcp")]
    run_in_turn(options.program, cases, options.repetitions)
    figures = ["mean_us", "p50_us", "p99_us", "max_us", "client_cpu_us_per_message",
               "server_cpu_us_per_message"]
    rows = [[case.name, size, *(round(case.median(size, figure), 3) for figure in figures)]
            for case in cases for size in SIZES_8]
    curves = [output.Curve(f"{case.device}, {label}",
                           [(size, case.median(size, figure)) for size in SIZES_8],
                           dashed=figure == "p99_us", colour=colour)
              for colour, case in enumerate(cases)
              for label, figure in (("mean", "mean_us"), ("P99", "p99_us"))]
    finish(options, 8, ["transport", "bytes", *figures], rows,
           "Figure 8: message latency, one outstanding, replies of 32 B",
           X_BYTES + ["set logscale y", "set xlabel 'message'", "set ylabel 'us'"], curves,
           ["The paper has eRPC beside it, on 25 and 100 Gbps; the text gives no numbers."])


def figure9(options):
    """Throughput of 1 MiB messages on one queue pair, over the number outstanding."""
    depths = [1, 2, 4, 8, 16]
    cases = {(name, depth): Case(f"{name}, {depth}", name,
                                 ["--test", "bandwidth", "--sizes", str(MESSAGE), "--outstanding",
                                  str(depth), *timing(options)], WAITING[options.polling])
             for depth in depths for name in ("softnic", "tcp")}
    run_in_turn(options.program, list(cases.values()), options.repetitions)
    figures = ["gigabytes_per_second", "cpu_seconds_per_gigabyte", "mean_us", "p99_us"]
    rows = [[name, depth, *(round(case.median(MESSAGE, figure), 4) for figure in figures)]
            for (name, depth), case in cases.items()]
    curves = [output.Curve(cases[name, 1].device,
                           [(depth, cases[name, depth].median(MESSAGE, figures[0]))
                            for depth in depths], colour=colour)
              for colour, name in enumerate(("softnic", "tcp"))]
    finish(options, 9, ["transport", "outstanding", *figures], rows,
           "Figure 9: throughput of 1 MiB messages, one queue pair, replies of 32 B",
           ["set logscale x 2", "set yrange [0:*]", "set xlabel 'messages outstanding'",
            "set ylabel 'GB/s'"], curves,
           ["The paper has eRPC and perftest RC / UD beside it, on links of 25 to 200 Gbps."])


def knee(points):
    """The smallest fragment with 95 % of the most throughput."""
    most = max(rate for _, rate in points)
    return next(fragment for fragment, rate in points if rate >= 0.95 * most)


def figure10(options):
    """Throughput over fragment size."""
    links = {"no pacing": "0", **{rate: rate for rate in LINK_RATES}}
    test = ["--test", "bandwidth", "--sizes", str(MESSAGE), *timing(options)]
    cases = {(link, fragment): Case(f"{link}, fragments of {fragment}", "softnic", test,
                                    {"engine.fragment_bytes": fragment, "softnic.link_rate": rate,
                                     **WAITING[options.polling]})
             for fragment in FRAGMENTS for link, rate in links.items()}
    run_in_turn(options.program, list(cases.values()), options.repetitions)
    rows = [[link, fragment, round(case.median(MESSAGE, "gigabytes_per_second"), 4),
             round(case.median(MESSAGE, "cpu_seconds_per_gigabyte"), 4)]
            for (link, fragment), case in cases.items()]
    curves, knees = [], []
    for colour, link in enumerate(links):
        points = [(fragment, cases[link, fragment].median(MESSAGE, "gigabytes_per_second"))
                  for fragment in FRAGMENTS]
        knees.append(f"{link} {knee(points) >> 10} KiB")
        curves.append(output.Curve(f"softnic (software RNIC), {link}", points, colour=colour))
    finish(options, 10, ["link", "fragment_bytes", "gigabytes_per_second",
                         "cpu_seconds_per_gigabyte"], rows,
           "Figure 10: throughput over fragment size, 1 MiB messages, 4 outstanding, one queue pair",
           X_BYTES + ["set yrange [0:*]", "set xlabel 'fragment'", "set ylabel 'GB/s'"], curves,
           ["Smallest fragment with 95 % of the most: " + ", ".join(knees) + "; softnic's default is "
            "64 KiB.",
            "The paper, on NICs: about 2 KB saturates 25 Gbps, more than 8 KB nearly 100 Gbps."])


def figure13(options):
    """Latency of a small flow beside large flows of one engine, with fragments and without."""
    fragments = {"4 KiB fragments": "4KiB", "without (1 MiB)": "1MiB"}
    cases = {}
    for flows in FLOWS:
        test = ["--test", "latency", "--sizes", "32", "--background", str(flows), *timing(options)]
        for link in LINK_RATES:
            for name, fragment in fragments.items():
                cases[link, name, flows] = Case(
                    f"{link}, {name}, {flows} flows", "softnic", test,
                    {"engine.fragment_bytes": fragment, "softnic.link_rate": link,
                     "engine.grants": 40, "engine.write_requests": 40,
                     **WAITING[options.polling]})
    run_in_turn(options.program, list(cases.values()), options.repetitions)
    figures = ["mean_us", "p50_us", "p99_us", "background_gigabytes_per_second"]
    rows = [[*key, *(round(case.median(32, figure), 3) for figure in figures)]
            for key, case in cases.items()]
    curves = [output.Curve(f"{link}, {name}",
                           [(flows, cases[link, name, flows].median(32, "mean_us"))
                            for flows in FLOWS], dashed=dashed == 1, colour=colour)
              for colour, link in enumerate(LINK_RATES) for dashed, name in enumerate(fragments)]
    finish(options, 13, ["link", "fragments", "large_flows", *figures], rows,
           "Figure 13: mean latency of a 32 B flow beside flows of 1 MiB messages on one engine",
           ["set logscale y", "set xlabel 'large flows'", "set ylabel 'us'"], curves,
           ["softnic paced to the link's rate; each large flow has two messages on their way."])


FIGURES = {8: figure8, 9: figure9, 10: figure10, 13: figure13}
