#!/usr/bin/env python3
"""What each of the step's optimizations is worth: the same network with one more of them from setting to setting, in turns, medians.

  reorder around each op   every tensor between two ops in the plain layout, one thread
  + layout propagation     blocked layouts from op to op, reorders at the borders only
  + fusion                 batch norm, addition and activations in one pass; in inference inside the convolution
  + arena                  buffers share memory by their lifetimes; before, each has its own place
  + algorithm choice       the fastest convolution for each shape (compute.autotune)
  + threads                all threads

and beside them, with --blas, the convolutions and fully connected layers alone as im2col + GEMM (bench/im2col), all else free, on one
thread and on all. Prints one JSON object.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys

from programs import run

HERE = pathlib.Path(__file__).resolve().parent
BATCHES = {"resnet50": 8, "alexnet": 16, "vgg_a": 8, "googlenet": 16}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=str(HERE.parent / "build" / "release"), help="folder of the programs")
    parser.add_argument("--models", nargs="+", default=list(BATCHES))
    parser.add_argument("--phases", nargs="+", choices=["train", "infer"], default=["train", "infer"])
    parser.add_argument("--threads", type=int, default=2, help="of the last setting")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="timed steps of each run")
    parser.add_argument("--batch", type=int, default=0, help="0: the model's own in this script")
    parser.add_argument("--blas", help="path of a BLAS library with cblas_sgemm, for the im2col baseline")
    return parser.parse_args()


def settings(arguments):
    """Name -> options of `bench step`, each with one more optimization than the one before."""
    many = str(arguments.threads)
    return {
        "reorder around each op": ["--threads", "1", "--fusion", "off", "--plain-between-ops", "--no-shared-memory", "--autotune", "off"],
        "+ layout propagation": ["--threads", "1", "--fusion", "off", "--no-shared-memory", "--autotune", "off"],
        "+ fusion": ["--threads", "1", "--no-shared-memory", "--autotune", "off"],
        "+ arena": ["--threads", "1", "--autotune", "off"],
        "+ algorithm choice": ["--threads", "1"],
        "+ threads": ["--threads", many],
    }


def measure(arguments, model, phase):
    batch = str(arguments.batch or BATCHES.get(model, 8))
    program = [arguments.build + "/lockstep", "bench", "step", "--model", model, "--batch", batch, "--steps", str(arguments.steps),
               "--warmup", "1", "--json"] + (["--inference"] if phase == "infer" else [])
    runs = {name: [] for name in settings(arguments)}
    for _ in range(arguments.rounds):
        for name, options in settings(arguments).items():
            runs[name].append(run(program + options))
        for threads in sorted({1, arguments.threads}) if arguments.blas else []:
            baseline = [arguments.build + "/lockstep_im2col_step", arguments.blas, model, batch, str(arguments.steps), phase]
            one = run(baseline, {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)})
            runs.setdefault(f"im2col + BLAS, {threads} threads", []).append(one)
    rows = []
    for name, results in runs.items():
        rates = [result["images_per_s"] for result in results]
        row = {"setting": name, "images_per_s": statistics.median(rates), "min": min(rates), "max": max(rates)}
        for fact in ("reorders", "weight_reorders", "activation_bytes", "peak_resident_bytes"):
            if fact in results[0]:
                row[fact] = results[0][fact]
        rows.append(row)
        print(f"{model} {phase} {name}: {row['images_per_s']:.2f} images/s", file=sys.stderr)
    return {"model": model, "phase": phase, "batch": int(batch), "settings": rows,
            "whole_over_first": rows[len(settings(arguments)) - 1]["images_per_s"] / rows[0]["images_per_s"]}, runs["+ threads"][-1]


def main():
    arguments = parse_arguments()
    results, last = [], {}
    for model in arguments.models:
        for phase in arguments.phases:
            result, last = measure(arguments, model, phase)
            results.append(result)
    print(json.dumps({"benchmark": "ablation", "rounds": arguments.rounds, "steps": arguments.steps, "threads": arguments.threads,
                      "backend_description": last["backend_description"], "results": results, "machine": last["machine"]}))


if __name__ == "__main__":
    main()
