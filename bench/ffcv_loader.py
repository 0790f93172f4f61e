#!/usr/bin/env python3
"""FFCV's loader: `write` makes a .beton of class folders, `time` measures images/s of random_resized_crop, flip and normalise on one.

`time` runs on --threads cores with as many threads; the first pass, in which FFCV compiles its pipeline, is not timed. The batches are
fp32 and as FFCV leaves them: NHWC. Prints one JSON object.
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import statistics
import time

import numpy
import torch
from PIL import Image

MEAN, STD = numpy.array([0.485, 0.456, 0.406]) * 255, numpy.array([0.229, 0.224, 0.225]) * 255


class ClassFolders:
    """What FFCV's writer takes: pictures and the numbers of their classes, in byte order of the names."""

    def __init__(self, folder):
        classes = sorted(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
        self.files = [(path, number) for number, path_of_class in enumerate(classes) for path in sorted(path_of_class.iterdir())]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, number = self.files[index]
        return Image.open(path).convert("RGB"), number


def write(arguments):
    from ffcv.fields import IntField, RGBImageField
    from ffcv.writer import DatasetWriter
    picture = RGBImageField(write_mode=arguments.mode, max_resolution=arguments.max_side, jpeg_quality=arguments.quality)
    writer = DatasetWriter(arguments.beton, {"image": picture, "label": IntField()}, num_workers=1, page_size=1 << 21)
    writer.from_indexed_dataset(ClassFolders(arguments.folder))


def measure(arguments):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:arguments.threads])
    torch.set_num_threads(1)
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage
    size = arguments.image_size
    loader = Loader(arguments.beton, batch_size=arguments.batch, num_workers=arguments.threads, order=OrderOption.RANDOM, os_cache=True,
                    drop_last=False, pipelines={
                        "image": [RandomResizedCropRGBImageDecoder((size, size)), RandomHorizontalFlip(),
                                  NormalizeImage(MEAN, STD, numpy.float32), ToTensor(), ToTorchImage()],
                        "label": [IntDecoder(), ToTensor(), Squeeze()]})
    rates = []
    for _ in range(1 + arguments.passes):
        begin = time.perf_counter()
        images = sum(len(labels) for _, labels in loader)
        rates.append(images / (time.perf_counter() - begin))
    print(json.dumps({"benchmark": "ffcv_loader", "threads": arguments.threads, "images": images,
                      "images_per_s": statistics.median(rates[1:]), "rates": rates[1:], "torch": torch.__version__,
                      "ffcv": importlib.metadata.version("ffcv")}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    writing = commands.add_parser("write")
    writing.add_argument("folder")
    writing.add_argument("beton")
    writing.add_argument("--mode", choices=["jpg", "raw"], default="jpg")
    writing.add_argument("--max-side", type=int, help="longer side of what is written; larger pictures are resized")
    writing.add_argument("--quality", type=int, default=90)
    writing.set_defaults(run=write)
    timing = commands.add_parser("time")
    timing.add_argument("beton")
    timing.add_argument("--threads", type=int, default=1)
    timing.add_argument("--image-size", type=int, default=224)
    timing.add_argument("--batch", type=int, default=32)
    timing.add_argument("--passes", type=int, default=1, help="timed passes, after one that is not timed")
    timing.set_defaults(run=measure)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
