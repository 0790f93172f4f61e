#!/usr/bin/env python3
"""Writes the golden values of tests/unit/nn/golden_test.cc with PyTorch in double precision, from torchvision's networks.

    python3 tests/golden/make_golden.py [SET...]    (PyTorch >= 1.13, torchvision; Debian: python3-torch, python3-torchvision)

Weights, images and labels follow from the formula in `noise`, which the test computes too; only results are kept here.
"""
import json
import math
import pathlib
import sys

import numpy as np
import torch
import torchvision

HERE = pathlib.Path(__file__).resolve().parent


def name_seed(name):
    """FNV-1a, 32 bits."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 % 2**32
    return seed


def hashed(name, count):
    """32 bits for each element of the tensor called `name`."""
    x = (np.arange(count, dtype=np.uint64) * 2654435761 + name_seed(name)).astype(np.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> np.uint32(shift)
        x *= np.uint32(factor)
    return x ^ (x >> np.uint32(16))


def noise(name, count):
    """Uniform in [-1, 1), exact in fp32."""
    return (hashed(name, count) >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-23) - np.float32(1.0)


# Start values: [middle, spread] of batch norm's scale and shift; `fc_weight` scales the last layer.
#
# Where a value lies within rounding of zero, ReLU may let it pass here and stop it there, and one such element moves the gradients
# below it by more than the tolerance. ResNet-50's gradients are compared one by one, so its shifts keep most values of a channel on
# one side of zero. Weights after ten small steps do not feel single elements: ResNet-20 starts like any network.
APART = {"bn_scale": [0.5, 0.1], "bn_shift": [1.25, 0.125], "fc_weight": 0.25}
ORDINARY = {"bn_scale": [1.0, 0.5], "bn_shift": [0.0, 0.25], "fc_weight": 1.0}


def parameter(name, shape, start):
    u = noise(name, math.prod(shape))
    if len(shape) >= 2:  # activations keep their scale through ReLU
        value = u * np.float32(math.sqrt(6.0 / math.prod(shape[1:])))
        if name == "fc.weight":
            value = value * np.float32(start["fc_weight"])
    elif name == "fc.bias":
        value = u * np.float32(0.125)
    elif name.endswith(".weight"):
        value = np.float32(start["bn_scale"][0]) + u * np.float32(start["bn_scale"][1])
    else:
        value = np.float32(start["bn_shift"][0]) + u * np.float32(start["bn_shift"][1])
        if name.endswith(".bn1.bias"):  # the first batch norm of a block turns some channels off
            value = np.where(u < np.float32(-0.25), -value, value)
    return torch.from_numpy(value.reshape(shape).astype(np.float64))


def fill(model, start):
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(parameter(name, tuple(tensor.shape), start))


def batch(prefix, images, size, classes):
    pixels = noise(f"{prefix}.images", images * 3 * size * size) * np.float32(math.sqrt(3.0))
    labels = hashed(f"{prefix}.labels", images) % classes
    return torch.from_numpy(pixels.reshape(images, 3, size, size).astype(np.float64)), torch.from_numpy(labels.astype(np.int64))


def summary(name, tensor):
    """Euclidean norm and eight elements at places that follow from the name."""
    flat = tensor.detach().reshape(-1)
    places = hashed(name + ".places", 8) % flat.numel()
    return {"norm": float(f"{flat.norm().item():.9g}"),
            "samples": [float(f"{flat[int(place)].item():.9g}") for place in places]}


def numbers(tensor):
    return [float(f"{value:.9g}") for value in tensor.detach().reshape(-1).tolist()]


def resnet50_gradients(size):
    model = torchvision.models.resnet50().double().train()
    fill(model, APART)
    images, labels = batch("resnet50", 2, size, 1000)
    logits = model(images)
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    loss.backward()
    return {"batch": 2, "image_size": size, "classes": 1000, "start": APART, "loss": loss.item(), "logits": numbers(logits),
            "gradients": {name: summary(name, tensor.grad) for name, tensor in model.named_parameters()}}


class BasicBlock(torch.nn.Module):
    """Residual block whose shortcut subsamples and pads channels on both sides (option A)."""

    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(channels_out)
        self.conv2 = torch.nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(channels_out)
        self.stride = stride
        self.pad = (channels_out - channels_in) // 2

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        shortcut = torch.nn.functional.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.pad, self.pad))
        return torch.relu(y + shortcut)


class ResNet20(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.layer1 = torch.nn.Sequential(*[BasicBlock(16, 16, 1) for _ in range(3)])
        self.layer2 = torch.nn.Sequential(BasicBlock(16, 32, 2), *[BasicBlock(32, 32, 1) for _ in range(2)])
        self.layer3 = torch.nn.Sequential(BasicBlock(32, 64, 2), *[BasicBlock(64, 64, 1) for _ in range(2)])
        self.fc = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean(dim=(2, 3)))


def resnet20_steps(size):
    model = ResNet20().double().train()
    fill(model, ORDINARY)
    decayed = [tensor for tensor in model.parameters() if tensor.dim() > 1]
    exempt = [tensor for tensor in model.parameters() if tensor.dim() == 1]
    rate, momentum, weight_decay, images_per_step = 0.01, 0.9, 1e-4, 16
    optimizer = torch.optim.SGD([{"params": decayed, "weight_decay": weight_decay}, {"params": exempt, "weight_decay": 0.0}],
                                lr=rate, momentum=momentum, nesterov=True)
    losses = []
    for step in range(10):
        images, labels = batch(f"resnet20.{step}", images_per_step, size, 10)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    final = {name: summary(name, tensor) for name, tensor in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    return {"batch": images_per_step, "image_size": size, "classes": 10, "start": ORDINARY, "rate": rate, "momentum": momentum,
            "weight_decay": weight_decay, "statistics_keep": 0.9, "losses": losses, "final": final}


def write(name, golden):
    golden["made_by"] = f"make_golden.py, PyTorch {torch.__version__}, torchvision {torchvision.__version__}, double precision"
    with open(HERE / name, "w") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


def main():
    torch.set_num_threads(2)
    makers = {"resnet50": resnet50_gradients, "resnet20_sgd": resnet20_steps}
    for name in sys.argv[1:] or ("resnet50_64", "resnet50_224", "resnet20_sgd_16", "resnet20_sgd_32"):
        network, _, size = name.rpartition("_")
        write(f"{name}.json", makers[network](int(size)))


if __name__ == "__main__":
    main()
