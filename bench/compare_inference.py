#!/usr/bin/env python3
"""Compares ResNet-50's inference by Lockstep, PyTorch and ONNX Runtime on this machine: in turns, each run in a fresh process, medians.

Prints one JSON object. Ends with 1 when Lockstep is below --at-least times the best peer at any batch.
"""
import argparse
import json
import pathlib
import statistics
import sys

from programs import run

HERE = pathlib.Path(__file__).resolve().parent


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lockstep", default=str(HERE.parent / "build" / "release" / "lockstep"), help="the program")
    parser.add_argument("--torch-python", help="an interpreter that has torch and torchvision")
    parser.add_argument("--onnx-python", help="an interpreter that has onnxruntime and onnx")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--torch-engines", nargs="+", default=["pytorch", "pytorch-channels-last"])
    parser.add_argument("--at-least", type=float, default=0.0, help="smallest acceptable ratio")
    return parser.parse_args()


def commands(arguments, batch):
    steps = str(max(3, 40 // batch))
    common = ["--batch", str(batch), "--threads", str(arguments.threads), "--steps", steps, "--warmup", "1"]
    peer = str(HERE / "inference_peer.py")
    all_commands = {"lockstep": [arguments.lockstep, "bench", "step", "--inference", "--model", "resnet50", "--json", *common]}
    if arguments.torch_python:
        for engine in arguments.torch_engines:
            all_commands[engine] = [arguments.torch_python, peer, engine, *common]
    if arguments.onnx_python:
        all_commands["onnxruntime"] = [arguments.onnx_python, peer, "onnxruntime", *common]
    return all_commands


def compare(arguments, batch):
    rates, last = {name: [] for name in commands(arguments, batch)}, {}
    for _ in range(arguments.rounds):
        for name, command in commands(arguments, batch).items():
            last[name] = run(command)
            rates[name].append(last[name]["images_per_s"])
            print(f"batch {batch}: {name} {rates[name][-1]:.2f} images/s", file=sys.stderr)
    medians = {name: statistics.median(values) for name, values in rates.items()}
    peers = [name for name in medians if name != "lockstep"]
    best = max(peers, key=medians.get) if peers else None
    return {"batch": batch, "images_per_s": medians, "runs": rates, "best_peer": best,
            "ratio": medians["lockstep"] / medians[best] if best else None,
            "versions": {name: last[name].get("version", last[name].get("backend_description")) for name in last}}, last["lockstep"]


def main():
    arguments = parse_arguments()
    results, ours = [], {}
    for batch in arguments.batches:
        result, ours = compare(arguments, batch)
        results.append(result)
    print(json.dumps({"benchmark": "compare_inference", "model": "resnet50", "threads": arguments.threads, "rounds": arguments.rounds,
                      "results": results, "machine": ours["machine"]}))
    return 0 if all(result["ratio"] is None or result["ratio"] >= arguments.at_least for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
