#!/usr/bin/env python3
"""Is the automatic choice of a schedule right, and is the simulator? On one emulated link, for one number of nodes.

Runs `lockstep bench allreduce` over scripts/netlab with comm.algorithm auto, within the rank tree and in any order, and with every
algorithm forced, all in turn, and `lockstep simulate allreduce` with the figures of netlab's self-test and of nothing else. Prints one
JSON object: for each size the medians of the automatic choices, the best forced algorithm's, the ratios, and how far the simulator is
off for each algorithm. Needs root. Ends with 1 when the ratio of the choice in any order is above --at-most.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHOICES = ["auto", "fastest"]  # within the rank tree; whatever is fastest (run.reproducible: off)
ALGORITHMS = ["exchange", "halving_doubling", "ring", "tree", "double_tree"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default=str(ROOT / "build" / "release"), help="folder of the programs")
    parser.add_argument("--nodes", type=int, default=2, help="nodes, one rank each")
    parser.add_argument("--delay-ms", type=float, default=0.6, help="one way")
    parser.add_argument("--rate-mbit", type=float, default=1000)
    parser.add_argument("--sizes", default="4B,1KiB,64KiB,1MiB,8MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--turn-ms", type=float, default=60)
    parser.add_argument("--overhead-us", type=float, default=36, help="o of the simulator: a processor's work per message and side")
    parser.add_argument("--at-most", type=float, default=float("inf"), help="largest acceptable ratio of automatic to best forced")
    return parser.parse_args()


def run(command):
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {result.returncode}:\n{(result.stderr or result.stdout).strip()}")
    return result.stdout


def netlab(arguments, *more):
    link = ["--delay-ms", str(arguments.delay_ms), "--rate-mbit", str(arguments.rate_mbit)]
    return run([str(ROOT / "scripts" / "netlab"), *link, *more])


def self_test(arguments):
    text = netlab(arguments, "--self-test")
    return {"rtt_ms": float(re.search(r"rtt_ms (\S+)", text)[1]), "rate_mbit": float(re.search(r"rate_mbit (\S+)", text)[1])}


def measured(arguments):
    output = netlab(arguments, "--nodes", str(arguments.nodes), "--per-node", "1", "--once", "--",
                    f"{arguments.build}/lockstep", "bench", "allreduce", "--ranks", str(arguments.nodes), "--sizes", arguments.sizes,
                    "--peers", "none", "--lockstep-backend", "tcp", "--algorithm", ",".join([*CHOICES, *ALGORITHMS]),
                    "--rounds", str(arguments.rounds), "--turn-ms", str(arguments.turn_ms), "--json")
    bench = json.loads(output.strip().splitlines()[-1])
    times = {}
    for row in bench["rows"]:
        last = row["setting"].split(", ")[-1]
        times.setdefault(row["bytes"], {})[last if last in [*CHOICES, *ALGORITHMS] else "auto"] = row["median_us"]
    return bench, times


def simulated(arguments, link):
    output = run([f"{arguments.build}/lockstep", "simulate", "allreduce", "--ranks", str(arguments.nodes),
                  "--latency-us", str(arguments.delay_ms * 1e3), "--overhead-us", str(arguments.overhead_us),
                  "--gbit", str(link["rate_mbit"] / 1e3), "--sizes", arguments.sizes, "--json"])
    times = {}
    for row in json.loads(output)["rows"]:
        times.setdefault(row["bytes"], {})[row["algorithm"]] = row["time_us"]
    return times


def main():
    arguments = parse_arguments()
    link = self_test(arguments)
    bench, times = measured(arguments)
    model = simulated(arguments, link)
    rows = []
    for size, row in sorted(times.items()):
        forced = {name: row[name] for name in ALGORITHMS if name in row}
        best = min(forced, key=forced.get)
        rows.append({"bytes": size, "auto_us": row["auto"], "fastest_us": row["fastest"],
                     "best_forced": best, "best_forced_us": forced[best], "auto_ratio": round(row["auto"] / forced[best], 3),
                     "ratio": round(row["fastest"] / forced[best], 3), "forced_us": forced,
                     "simulator_off": {name: round(model[size][name] / time - 1, 3) for name, time in forced.items()
                                       if name in model.get(size, {})}})
    print(json.dumps({"nodes": arguments.nodes, "asked": {"delay_ms": arguments.delay_ms, "rate_mbit": arguments.rate_mbit},
                      "self_test": link, "rows": rows, "steal_share": bench["steal_share"], "failures": bench["failures"],
                      "machine": bench["machine"]}))
    return 1 if any(row["ratio"] > arguments.at_most for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
