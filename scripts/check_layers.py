#!/usr/bin/env python3
"""Who may include whom. Fails with file:line for each include that goes against docs/ARCHITECTURE.md.

Three rules: folders depend in one direction; a foreign library's headers appear only in their own folder; no conditional
compilation (a difference of device or library is a file).
"""
import pathlib
import re
import sys

ALLOWED = {  # folder -> folders it may include, besides itself
    "core": set(),
    "net": {"core"},
    "nn": {"core"},
    "models": {"core", "nn"},
    "interop": {"core", "nn"},
    "optim": {"core"},
    "collectives": {"core", "net"},
    "data_loader": {"core"},
    "report": {"core"},
    "launch": {"core", "net"},
    "configs": {"core"},
    "trainer": {"core", "net", "nn", "models", "interop", "optim", "collectives", "data_loader", "report", "launch", "configs"},
    "bench": {"core", "net", "nn", "models", "optim", "collectives", "data_loader", "report", "launch", "configs"},
}
ALLOWED["cli"] = set(ALLOWED) - {"cli"}

FOREIGN = {  # header prefix -> folders that may include it
    "dnnl": ["nn/onednn"],
    "oneapi/": ["nn/onednn"],
    "gloo/": ["collectives/gloo", "bench/peers"],
    "mpi.h": ["collectives/mpi", "bench/peers"],
    "nccl": ["collectives/nccl"],
    "cuda": ["nn/cuda", "core/cuda", "optim/cuda"],
    "cudnn": ["nn/cuda"],
    "openssl/": ["net"],
    "hwloc": ["launch/hwloc"],
    "hwy/": ["collectives/kernels", "collectives/shared_memory", "nn/onednn", "optim", "data_loader"],
    "yaml-cpp/": ["configs"],
    "CLI/": ["cli", "bench/netlab"],
    "spdlog/": ["core"],
    "google/protobuf": ["report"],
    "jpeglib": ["data_loader"],
    "png.h": ["data_loader"],
    "zlib": ["data_loader"],
    "xxhash": ["core"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif)\b")


def problems_in(root, path):
    folder = path.relative_to(root).parts[0]
    where = str(path.relative_to(root))
    lines = path.read_text().splitlines()
    # Highway compiles one file once per instruction set by including it again; its guard is the one condition allowed.
    per_target = any("HWY_TARGET_INCLUDE" in line for line in lines)
    for number, line in enumerate(lines, 1):
        if CONDITION.match(line) and not (per_target and "HWY" in line):
            yield f"{where}:{number}: conditional compilation; make it a file"
        match = INCLUDE.match(line)
        if not match:
            continue
        name = match.group(2)
        target = name.split("/")[0]
        if target in ALLOWED and "/" in name and target != folder and target not in ALLOWED[folder]:
            yield f"{where}:{number}: {folder}/ may not include {name}"
        for prefix, homes in FOREIGN.items():
            if name.startswith(prefix) and not (root / target).is_dir() and not any(where.startswith(home + "/") for home in homes):
                yield f"{where}:{number}: {name} belongs only in {' or '.join(homes)}"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent).resolve()
    files = [path for folder in ALLOWED for pattern in ("*.h", "*.cc") for path in (root / folder).rglob(pattern)]
    if not files:
        sys.exit("no source files found: nothing was checked")
    problems = [problem for path in sorted(files) for problem in problems_in(root, path)]
    print("\n".join(problems) if problems else f"layers hold in {len(files)} files")
    sys.exit(1 if problems else 0)


main()
