#!/usr/bin/python3
"""Writes augment.txt and augment_magnitudes.txt: what torchvision makes of Pillow's images, one operation a line (made with Debian
12's Pillow 9.4 and torchvision 0.14.1). The tests compare with these files and need no Python."""
import os

import numpy as np
from PIL import Image
from torchvision.transforms import functional as F
from torchvision.transforms.autoaugment import RandAugment, _apply_op

from make_resize_golden import FOLDER, checksum, picture

NEAREST = F.InterpolationMode.NEAREST


def colours():
    """Every eighth shade of each channel, and the last: 33 x 33 x 33."""
    shades = np.minimum(np.arange(33) * 8, 255).astype(np.uint8)
    r, g, b = np.meshgrid(shades, shades, shades, indexing="ij")
    return np.stack([r, g, b], axis=-1).reshape(33, 33 * 33, 3)


def gradient(width, height, channels):
    """Half of the range only, so that autocontrast has something to do."""
    return (picture(width, height, channels) // 3 + 60).astype(np.uint8)


def image_of(name):
    kind, width, height, channels = name.split(":")
    make = {"picture": picture, "gradient": gradient, "colours": lambda *_: colours()}[kind]
    pixels = make(int(width), int(height), int(channels))
    return Image.fromarray(pixels[:, :, 0] if channels == "1" else pixels)


JITTER = {
    "jitter_brightness": (F.adjust_brightness, [0.0, 0.3, 0.6, 1.0, 1.4, 3.0]),
    "jitter_contrast": (F.adjust_contrast, [0.0, 0.6, 1.0, 1.37]),
    "jitter_saturation": (F.adjust_saturation, [0.0, 0.6, 1.0, 1.4, 2.5]),
    "jitter_hue": (F.adjust_hue, [-0.5, -0.1, -0.003, 0.0, 0.05, 0.4, 0.5]),
}
OPERATIONS = {
    "identity": ("Identity", [0.0]),
    "shear_x": ("ShearX", [-0.3, 0.0, 0.09, 0.21]),
    "shear_y": ("ShearY", [-0.3, 0.0, 0.09, 0.21]),
    "translate_x": ("TranslateX", [-30.45, 0.0, 7.9, 500.0]),
    "translate_y": ("TranslateY", [-30.45, 0.0, 7.9, 500.0]),
    "rotate": ("Rotate", [-30.0, -9.0, 0.0, 1.0, 17.3]),
    "brightness": ("Brightness", [-0.9, 0.27, 0.9]),
    "color": ("Color", [-0.9, 0.27, 0.9]),
    "contrast": ("Contrast", [-0.9, 0.27, 0.9]),
    "sharpness": ("Sharpness", [-0.9, 0.0, 0.27, 0.9]),
    "posterize": ("Posterize", [8.0, 7.0, 4.0]),
    "solarize": ("Solarize", [255.0, 178.5, 0.0]),
    "autocontrast": ("AutoContrast", [0.0]),
    "equalize": ("Equalize", [0.0]),
}
IMAGES = ["picture:64:48:3", "picture:31:57:1", "gradient:101:77:3", "gradient:2:9:3"]


def write_operations():
    with open(os.path.join(FOLDER, "augment.txt"), "w", encoding="ascii") as out:
        for image in IMAGES + ["colours:1089:33:3"]:
            for name, (function, factors) in JITTER.items():
                for factor in factors:
                    print(name, factor, image, checksum(np.asarray(function(image_of(image), factor))), file=out)
        for image in IMAGES:
            for name, (operation, values) in OPERATIONS.items():
                for value in values:
                    result = _apply_op(image_of(image), operation, value, NEAREST, None)
                    print(name, value, image, checksum(np.asarray(result)), file=out)


def write_magnitudes():
    with open(os.path.join(FOLDER, "augment_magnitudes.txt"), "w", encoding="ascii") as out:
        for bins in (31, 10):
            space = RandAugment()._augmentation_space(bins, (57, 224))  # height, width
            for name, (operation, _) in OPERATIONS.items():
                magnitudes, signed = space[operation]
                for magnitude in range(bins):
                    value = float(magnitudes[magnitude].item()) if magnitudes.ndim > 0 else 0.0
                    print(name, bins, magnitude, int(signed), repr(value), file=out)


write_operations()
write_magnitudes()
