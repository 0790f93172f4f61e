#!/usr/bin/env python3
"""Images/s of torchvision's DataLoader with random_resized_crop, flip and normalise, on class folders.

The process and its workers run on --threads cores. `pil`: Pillow decodes and resizes, as torchvision's own examples do. `tensor`:
torchvision's JPEG decoder, and its transforms on tensors (antialiased). Prints one JSON object.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torchvision
from torchvision import transforms

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def read_tensor(path):
    return torchvision.io.read_image(path, torchvision.io.ImageReadMode.RGB)


def crop(size):
    try:
        return transforms.RandomResizedCrop(size, antialias=True)
    except TypeError:  # before 0.15 the class has no such option; tensors are then resized without antialias, which is faster
        return transforms.RandomResizedCrop(size)


def make_dataset(arguments):
    if arguments.decoder == "pil":
        steps = [transforms.RandomResizedCrop(arguments.image_size), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                 transforms.Normalize(MEAN, STD)]
        return torchvision.datasets.ImageFolder(arguments.folder, transforms.Compose(steps))
    steps = [crop(arguments.image_size), transforms.RandomHorizontalFlip(),
             transforms.ConvertImageDtype(torch.float32), transforms.Normalize(MEAN, STD)]
    return torchvision.datasets.ImageFolder(arguments.folder, transforms.Compose(steps), loader=read_tensor)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--decoder", choices=["pil", "tensor"], default="pil")
    parser.add_argument("--threads", type=int, default=1, help="cores; as many workers, or with 0 workers the process itself")
    parser.add_argument("--workers", type=int, default=-1, help="-1: as many as cores; 0: none, the process decodes")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--passes", type=int, default=1, help="timed passes over the folder, after one that is not timed")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:arguments.threads])
    torch.set_num_threads(1)
    workers = arguments.threads if arguments.workers < 0 else arguments.workers
    dataset = make_dataset(arguments)
    loader = torch.utils.data.DataLoader(dataset, batch_size=arguments.batch, shuffle=True, num_workers=workers,
                                         persistent_workers=workers > 0)
    rates = []
    for _ in range(1 + arguments.passes):  # the first starts the workers
        begin = time.perf_counter()
        images = sum(len(labels) for _, labels in loader)
        rates.append(images / (time.perf_counter() - begin))
    print(json.dumps({"benchmark": "torchvision_loader", "decoder": arguments.decoder, "threads": arguments.threads, "workers": workers,
                      "images": len(dataset), "images_per_s": statistics.median(rates[1:]), "rates": rates[1:],
                      "torch": torch.__version__, "torchvision": torchvision.__version__}))


if __name__ == "__main__":
    main()
