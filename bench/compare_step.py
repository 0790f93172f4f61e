#!/usr/bin/env python3
"""Compares one training step of Lockstep and of PyTorch on this machine: A B A B ..., each in a fresh process, medians.

Neighbours and frequency shift a machine's speed within minutes, so the two take turns and only their ratio means much. Lockstep runs
as it is and with compute.exact_convolution, PyTorch in each of its settings, all in every round; PyTorch's setting with the best
median is the peer. Prints one JSON object. Ends with 1 when the ratio is below --at-least.
"""
import argparse
import json
import pathlib
import statistics
import sys

from programs import run

HERE = pathlib.Path(__file__).resolve().parent


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lockstep", default=str(HERE.parent / "build" / "release" / "lockstep"), help="the program")
    parser.add_argument("--python", default="/usr/bin/python3", help="an interpreter that has torch and torchvision")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--image-size", type=int, default=0, help="0: the model's usual size")
    parser.add_argument("--autotune", choices=["off", "heuristic", "measure"], default="heuristic", help="Lockstep's compute.autotune")
    parser.add_argument("--compile", action="store_true", help="torch.compile is one more setting of PyTorch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of each run")
    parser.add_argument("--at-least", type=float, default=0.0, help="smallest acceptable ratio")
    return parser.parse_args()


def commands(arguments):
    common = ["--model", arguments.model, "--batch", str(arguments.batch), "--threads", str(arguments.threads),
              "--precision", arguments.precision, "--steps", str(arguments.steps)]
    if arguments.image_size > 0:
        common += ["--image-size", str(arguments.image_size)]
    pytorch = [arguments.python, str(HERE / "pytorch_step.py"), *common]
    lockstep = [arguments.lockstep, "bench", "step", *common, "--warmup", "1", "--json"]
    found = {
        "lockstep": [*lockstep, "--autotune", arguments.autotune],
        "lockstep exact": [*lockstep, "--exact"],
        "pytorch": pytorch,
        "pytorch channels-last": [*pytorch, "--channels-last"],
    }
    if arguments.compile:
        found["pytorch compiled"] = [*pytorch, "--compile"]
    return found


def summary(rates):
    return {"median": statistics.median(rates), "min": min(rates), "max": max(rates), "runs": rates}


def main():
    arguments = parse_arguments()
    rates = {name: [] for name in commands(arguments)}
    last = {}
    for round_number in range(arguments.rounds):
        for name, command in commands(arguments).items():
            last[name] = run(command)
            rates[name].append(last[name]["images_per_s"])
            print(f"round {round_number + 1}: {name} {rates[name][-1]:.2f} images/s", file=sys.stderr)
    summaries = {name: summary(values) for name, values in rates.items()}
    peer = max((name for name in summaries if name.startswith("pytorch")), key=lambda name: summaries[name]["median"])
    ratio = summaries["lockstep"]["median"] / summaries[peer]["median"]
    exact_ratio = summaries["lockstep exact"]["median"] / summaries[peer]["median"]
    print(json.dumps({
        "benchmark": "compare_step",
        "model": arguments.model,
        "batch": arguments.batch,
        "threads": arguments.threads,
        "precision": arguments.precision,
        "rounds": arguments.rounds,
        "images_per_s": summaries,
        "peak_resident_bytes": {name: last[name]["peak_resident_bytes"] for name in last},
        "best_peer": peer,
        "ratio": ratio,
        "exact_ratio": exact_ratio,
        "peer_version": last[peer]["torch"],
        "backend_description": last["lockstep"]["backend_description"],
        "machine": last["lockstep"]["machine"],
    }))
    return 0 if ratio >= arguments.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
