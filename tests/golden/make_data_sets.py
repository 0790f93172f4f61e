#!/usr/bin/env python3
"""Writes tests/golden/datum_lmdb/data.mdb with programs that know nothing of Lockstep: the library LMDB through python3-lmdb, protoc for
the messages, Pillow for the pixels (Debian's python3-lmdb, protobuf-compiler, python3-pil).

Every second picture of tests/cases/sets/set101/train, in the order of the folder source, as a Caffe Datum: in turn the file itself
(encoded), and raw as convert_imageset stores it, planes of blue, green, red.
"""
import pathlib
import shutil
import subprocess
import tempfile

import lmdb
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
COUNT = 40
PROTO = """syntax = "proto2";
message Datum {
  optional int32 channels = 1;
  optional int32 height = 2;
  optional int32 width = 3;
  optional bytes data = 4;
  optional int32 label = 5;
  repeated float float_data = 6;
  optional bool encoded = 7 [default = false];
}
"""


def pictures():
    train = HERE.parent / "cases" / "sets" / "set101" / "train"
    for label, folder in enumerate(sorted(path for path in train.iterdir() if path.is_dir())):
        for path in sorted(folder.iterdir()):
            yield path, label


def encode(fields, folder):
    text = "".join(f"{name}: {value}\n" for name, value in fields.items())
    return subprocess.run(["protoc", f"--proto_path={folder}", "--encode=Datum", "datum.proto"], input=text.encode(), check=True,
                          capture_output=True).stdout


def quoted(data):
    return '"' + "".join(f"\\{byte:03o}" for byte in data) + '"'


def datum(path, label, raw, folder):
    if not raw:
        return encode({"channels": 3, "height": 32, "width": 32, "data": quoted(path.read_bytes()), "label": label, "encoded": "true"},
                      folder)
    image = Image.open(path).convert("RGB")
    planes = b"".join(image.getchannel(name).tobytes() for name in "BGR")
    return encode({"channels": 3, "height": image.height, "width": image.width, "data": quoted(planes), "label": label}, folder)


def main():
    out = HERE / "datum_lmdb"
    with tempfile.TemporaryDirectory() as scratch:
        (pathlib.Path(scratch) / "datum.proto").write_text(PROTO)
        environment = lmdb.open(scratch + "/set", map_size=1 << 24)
        for number, (path, label) in enumerate(list(pictures())[:2 * COUNT:2]):
            with environment.begin(write=True) as transaction:  # one each, so that pages are written anew and freed
                transaction.put(f"{number:08d}_{path.name}".encode(), datum(path, label, number % 2 == 1, scratch))
        environment.copy(str(pathlib.Path(scratch)), compact=True)
        environment.close()
        out.mkdir(exist_ok=True)
        shutil.copy(scratch + "/data.mdb", out / "data.mdb")
    print(f"{out / 'data.mdb'}: {(out / 'data.mdb').stat().st_size} bytes")


if __name__ == "__main__":
    main()
