#!/usr/bin/env python3
"""Compares Lockstep's loader with torchvision's DataLoader (DALI on the CPU, FFCV) on the same pictures: A B A B ..., medians.

All do random_resized_crop 224, flip and normalise to fp32 NCHW. Everything runs on --threads cores with as many workers, in a fresh
process each turn; the peers have one pass before the timed ones, which Lockstep's benchmark has too. PICTURES are class folders or a
tar of them, which is unpacked first. torchvision runs with every --python that is given, by Pillow and by its own decoder, with
workers and (on one core) without; the setting with the best median is the peer of data.decode=exact and fast. FFCV writes the pictures
to .beton files of its own, JPEG of quality 90 and raw, --max-side at most, and Lockstep reads the same files. Prints one JSON object.
Ends with 1 when the ratio to the best torchvision is below --at-least.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tarfile
import tempfile

from programs import run

HERE = pathlib.Path(__file__).resolve().parent


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pictures", help="class folders, or a tar of them")
    parser.add_argument("--lockstep", default=str(HERE.parent / "build" / "release" / "lockstep"), help="the program")
    parser.add_argument("--python", action="append", default=[], help="an interpreter that has torchvision; may be given several times")
    parser.add_argument("--dali-python", help="an interpreter that has nvidia.dali")
    parser.add_argument("--ffcv-python", help="an interpreter that has ffcv")
    parser.add_argument("--max-side", type=int, default=256, help="longer side of the pictures in FFCV's files")
    parser.add_argument("--earlier", help="what an earlier call printed, whose rounds count as well: a long comparison in short parts")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=1, help="timed passes over the pictures in a turn")
    parser.add_argument("--override", action="append", default=[], help="key=value for Lockstep's configuration, such as a decode mode")
    parser.add_argument("--at-least", type=float, default=0.0, help="smallest acceptable ratio")
    arguments = parser.parse_args()
    if not arguments.python and not arguments.ffcv_python:
        arguments.python = ["/usr/bin/python3"]
    return arguments


def write_config(folder, pictures, overrides):
    config = folder / "loader.yaml"
    config.write_text(f"""data:
  train:
    path: {pictures}
    pipeline:
      - random_resized_crop: {{size: 224}}
      - hflip: {{}}
""")
    return [str(config), *overrides]


def ffcv_contestants(arguments, scratch, pictures, lockstep):
    commands, script = {}, str(HERE / "ffcv_loader.py")
    for mode in ["jpg", "raw"]:
        beton = str(scratch / f"{mode}.beton")
        subprocess.run([arguments.ffcv_python, script, "write", str(pictures), beton, "--mode", mode, "--max-side",
                        str(arguments.max_side)], check=True, capture_output=True)
        commands[f"lockstep on ffcv's {mode}"] = lockstep(beton)
        commands[f"ffcv {mode}"] = [arguments.ffcv_python, script, "time", beton, "--threads", str(arguments.threads), "--passes",
                                    str(arguments.passes)]
    return commands


def contestants(arguments, scratch, pictures):
    threads, passes = str(arguments.threads), str(arguments.passes)

    def lockstep(*what):
        return [arguments.lockstep, "bench", "loader", *what, "--threads", threads, "--rounds", passes, "--images", "0", "--json"]

    config = write_config(scratch, pictures, arguments.override)
    commands = {f"lockstep {mode}": lockstep(*config, f"data.decode={mode}") for mode in ["exact", "fast"]}
    for number, python in enumerate(arguments.python):
        for decoder in ["pil", "tensor"]:
            for workers in [threads] + (["0"] if arguments.threads == 1 else []):
                commands[f"torchvision {number} {decoder} {workers} workers"] = [
                    python, str(HERE / "torchvision_loader.py"), str(pictures), "--decoder", decoder, "--threads", threads, "--workers",
                    workers, "--passes", passes]
    if arguments.dali_python:
        for decode in ["whole", "crop"]:
            commands[f"dali {decode}"] = [arguments.dali_python, str(HERE / "dali_loader.py"), str(pictures), "--decode", decode,
                                          "--threads", threads, "--passes", passes]
    if arguments.ffcv_python:
        commands |= ffcv_contestants(arguments, scratch, pictures, lockstep)
    return commands


def rate_of(result):
    if result["benchmark"] != "loader":
        return result["images_per_s"]
    return next(row["images_per_s"] for row in result["rows"] if row["what"] == "loader")


def compare(arguments, scratch):
    pictures = pathlib.Path(arguments.pictures)
    if pictures.is_file():
        with tarfile.open(pictures) as archive:
            archive.extractall(scratch / "pictures")
        pictures = scratch / "pictures"
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0))[:arguments.threads])
    commands = contestants(arguments, scratch, pictures)
    earlier = json.loads(pathlib.Path(arguments.earlier).read_text())["images_per_s"] if arguments.earlier else {}
    rates, last = {name: list(earlier.get(name, {"runs": []})["runs"]) for name in commands}, {}
    for round_number in range(arguments.rounds):
        for name, command in commands.items():
            last[name] = run(["taskset", "-c", cores, *command])
            rates[name].append(rate_of(last[name]))
            print(f"round {round_number + 1}: {name} {rates[name][-1]:.1f} images/s", file=sys.stderr)
    return rates, last


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as scratch:
        rates, last = compare(arguments, pathlib.Path(scratch))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    versions = {name: {key: result[key] for key in ("torch", "torchvision", "dali", "ffcv") if key in result}
                for name, result in last.items()}
    result = {
        "benchmark": "compare_loader",
        "threads": arguments.threads,
        "rounds": len(rates["lockstep exact"]),
        "overrides": arguments.override,
        "images_per_s": {name: {"median": medians[name], "min": min(values), "max": max(values), "runs": values}
                         for name, values in rates.items()},
    }
    ratio = None
    if arguments.python:
        peer = max((name for name in medians if name.startswith("torchvision")), key=medians.get)
        ratio = medians["lockstep exact"] / medians[peer]
        result |= {"best_torchvision": peer, "ratio": ratio, "ratio_fast": medians["lockstep fast"] / medians[peer]}
    if arguments.ffcv_python:
        result["ratio_ffcv"] = {mode: medians[f"lockstep on ffcv's {mode}"] / medians[f"ffcv {mode}"] for mode in ["jpg", "raw"]}
    print(json.dumps({**result, "versions": versions, "machine": last["lockstep exact"]["machine"]}))
    return 0 if ratio is None or ratio >= arguments.at_least else 1


if __name__ == "__main__":
    sys.exit(main())
