#!/usr/bin/env python3
"""Compares the library's convolutions with this project's own kernels inside a network: `lockstep time` in turns with
compute.autotune off and heuristic, each run in a fresh process, the fastest run of each convolution.

Prints a table of the convolutions that an own kernel computes, those of the same shape and follow-up work together.
"""
import argparse
import pathlib
import sys

from programs import run

HERE = pathlib.Path(__file__).resolve().parent


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(HERE.parent / "build" / "release" / "lockstep"), help="the program")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--phase", choices=["infer", "train"], default="infer")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--code", default="own:pointwise", help="of the own kernel")
    return parser.parse_args()


def convolutions(arguments, autotune):
    """(op, part, what) -> its step, in the order of the program."""
    result = run([arguments.lockstep, "time", arguments.model, "--phase", arguments.phase, "--batch", str(arguments.batch), "--threads",
                  str(arguments.threads), "--iterations", str(arguments.iterations), "--autotune", autotune, "--json"])
    return {(step["op"], step["part"], step["what"]): step for step in result["steps"] if step["what"].startswith("convolution")}


def main():
    arguments = parse_arguments()
    fastest = {"off": {}, "heuristic": {}}
    own = {}
    for _ in range(arguments.rounds):
        for autotune, times in fastest.items():
            for key, step in convolutions(arguments, autotune).items():
                times[key] = min(step["ms"], times.get(key, step["ms"]))
                if autotune == "heuristic" and step["code"] == arguments.code:
                    own[key] = step
    if not own:
        sys.exit(f"no convolution of {arguments.model} is computed by {arguments.code}")
    groups = {}
    for key, step in own.items():  # what multiplies and moves as much is alike
        groups.setdefault((step["what"], step["flop"], step["bytes"]), []).append(key)
    print("| convolutions | GFLOP each | library: ms each; GFLOP/s | own: ms each; GFLOP/s | times |\n|---|---|---|---|---|")
    for (what, flop, _), keys in [*groups.items(), (("all", 0, 0), list(own))]:
        library, ours = (sum(fastest[autotune][key] for key in keys) / len(keys) for autotune in ("off", "heuristic"))
        flop = flop or sum(own[key]["flop"] for key in keys) / len(keys)
        name = f"{what} {keys[0][0]}" if len(keys) == 1 else f"{what} {keys[0][0]} and {len(keys) - 1} more"
        print(f"| {name if what != 'all' else f'all {len(keys)}'} | {flop / 1e9:.3f} | {library:.3f}; {flop / library / 1e6:.0f} | "
              f"{ours:.3f}; {flop / ours / 1e6:.0f} | {library / ours:.2f} |")


if __name__ == "__main__":
    main()
