#!/usr/bin/env python3
"""Writes tests/golden/ffcv_jpg.beton.gz, ffcv_raw.beton.gz and ffcv.txt with FFCV itself (pip package ffcv 1.0.2, compiled against
Debian's libopencv-dev and libturbojpeg0-dev).

Every fifth picture of tests/cases/sets/set101/train in byte order of the paths, as JPEG of FFCV's making and raw. A file is mostly
zeros, because FFCV fills pages of 2 MiB, and so is kept packed. ffcv.txt tells what FFCV's own decoder reads from them, a sample a
line: mode, index, label, the sums of its red, green and blue, and the three bytes of the pixel in row 5, column 3.
"""
import gzip
import pathlib
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "bench"))

from ffcv.fields import IntField, RGBImageField  # noqa: E402
from ffcv.fields.decoders import IntDecoder, SimpleRGBImageDecoder  # noqa: E402
from ffcv.loader import Loader, OrderOption  # noqa: E402
from ffcv.writer import DatasetWriter  # noqa: E402
from ffcv_loader import ClassFolders  # noqa: E402


class EveryFifth(ClassFolders):
    def __init__(self, folder):
        super().__init__(folder)
        self.files = self.files[::5]


def main():
    pictures = EveryFifth(HERE.parent / "cases" / "sets" / "set101" / "train")
    lines = []
    with tempfile.TemporaryDirectory() as scratch:
        for mode in ["jpg", "raw"]:
            beton = f"{scratch}/ffcv_{mode}.beton"
            writer = DatasetWriter(beton, {"image": RGBImageField(write_mode=mode), "label": IntField()}, num_workers=1, page_size=1 << 21)
            writer.from_indexed_dataset(pictures)
            (HERE / f"ffcv_{mode}.beton.gz").write_bytes(gzip.compress(pathlib.Path(beton).read_bytes(), 9, mtime=0))
            loader = Loader(beton, batch_size=1, num_workers=1, order=OrderOption.SEQUENTIAL,
                            pipelines={"image": [SimpleRGBImageDecoder()], "label": [IntDecoder()]})
            for index, (image, label) in enumerate(loader):
                pixels = image[0].astype(int)  # (height, width, 3)
                numbers = [*pixels.sum(axis=(0, 1)), *pixels[5, 3]]
                lines.append(f"{mode} {index} {int(label[0][0])} " + " ".join(str(number) for number in numbers))
    (HERE / "ffcv.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
