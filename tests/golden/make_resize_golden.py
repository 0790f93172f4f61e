#!/usr/bin/python3
"""Writes resize.txt, resize_filters.txt and random_resized_crop.txt: what Pillow and torchvision answer (made with Debian 12's Pillow 9.4 and
torchvision 0.14.1). The tests compare with these files and need no Python."""
import os

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import RandomResizedCrop

FOLDER = os.path.dirname(os.path.abspath(__file__))


def picture(width, height, channels):
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    return ((x * 7 + y * 13 + c * 31 + x * y % 251) % 256).astype(np.uint8)


def checksum(values):
    values = np.asarray(values).reshape(-1).astype(np.uint64)
    return int((values * (np.arange(len(values), dtype=np.uint64) + np.uint64(1))).sum(dtype=np.uint64))


def write_resize():
    sizes = [(1, 1, 1, 1), (1, 1, 5, 3), (5, 3, 1, 1), (32, 32, 32, 32), (32, 32, 224, 224), (500, 33, 224, 224), (33, 500, 224, 224),
             (500, 375, 224, 224), (500, 375, 341, 256), (375, 500, 256, 341), (224, 100, 224, 224), (100, 224, 224, 224),
             (2000, 1500, 341, 256), (2000, 1500, 100, 1500), (17, 19, 23, 29), (640, 480, 7, 5), (301, 299, 300, 300)]
    with open(os.path.join(FOLDER, "resize.txt"), "w", encoding="ascii") as out:
        for width, height, new_width, new_height in sizes:
            for channels in (1, 3):
                pixels = picture(width, height, channels)
                image = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels)
                resized = np.asarray(image.resize((new_width, new_height), Image.BILINEAR))
                print(width, height, channels, new_width, new_height, checksum(resized), file=out)


def write_filters():
    """Other filters, and a box whose borders lie inside pixels."""
    filters = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "nearest": Image.NEAREST}
    sizes = [(1, 1, 5, 3), (5, 3, 1, 1), (32, 32, 224, 224), (500, 33, 224, 224), (500, 375, 341, 256), (375, 500, 224, 224),
             (640, 480, 7, 5), (301, 299, 300, 300), (17, 19, 23, 29), (224, 100, 224, 224)]
    boxes = [(0.0, 0.0, 1.0, 1.0), (0.25, 0.5, 0.875, 0.9375)]  # shares of the sides: exact in binary, so are the borders
    with open(os.path.join(FOLDER, "resize_filters.txt"), "w", encoding="ascii") as out:
        for name, filter_id in filters.items():
            for width, height, new_width, new_height in sizes:
                for left, top, right, bottom in boxes if name != "nearest" else boxes[:1]:
                    box = (left * width, top * height, right * width, bottom * height)
                    image = Image.fromarray(picture(width, height, 3))
                    resized = np.asarray(image.resize((new_width, new_height), filter_id, box))
                    print(name, width, height, new_width, new_height, *box, checksum(resized), file=out)


class Numbers:
    """A linear congruential sequence in place of torch's generator."""
    state = 0

    def next(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state


NUMBERS = Numbers()


class Draw:
    @staticmethod
    def uniform_(low, high):
        u = (NUMBERS.next() >> 11) * 2.0**-53
        return torch.tensor([float(low) + u * (float(high) - float(low))])


def write_crops():
    torch.set_default_dtype(torch.float64)
    torch.empty = lambda *_args, **_kwargs: Draw
    torch.randint = lambda low, high, size: torch.tensor([low + (NUMBERS.next() >> 33) % (high - low)])
    with open(os.path.join(FOLDER, "random_resized_crop.txt"), "w", encoding="ascii") as out:
        for width, height in [(500, 375), (375, 500), (500, 33), (33, 500), (1, 1), (2, 3), (32, 32), (4000, 10), (640, 480), (224, 224)]:
            for seed in range(2):
                NUMBERS.state = seed
                image = Image.new("L", (width, height))
                boxes = []
                for _ in range(500):
                    y, x, h, w = RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3])
                    boxes += [x, y, w, h]
                print(width, height, seed, *boxes[:4], checksum(boxes), file=out)


if __name__ == "__main__":
    write_resize()
    write_filters()
    write_crops()
