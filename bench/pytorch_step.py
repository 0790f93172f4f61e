#!/usr/bin/env python3
"""Times the training step of a torchvision model, or of ResNet-20, in PyTorch: forward, loss, backward, SGD update on synthetic data.

The peer of `lockstep bench step`: same model, batch and optimizer (momentum 0.9, Nesterov, weight decay 1e-4). Prints one JSON object.
"""
import argparse
import json
import platform
import resource
import statistics
import time

import torch
import torchvision


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet50", help="a name in torchvision.models, or resnet20")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--image-size", type=int, default=0, help="0: the model's usual size")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1)
    return parser.parse_args()


class BasicBlock(torch.nn.Module):
    """Two 3x3 convolutions and a shortcut that subsamples and pads channels on both sides (option A)."""

    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.convolutions = torch.nn.Sequential(
            torch.nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False), torch.nn.BatchNorm2d(channels_out),
            torch.nn.ReLU(inplace=True), torch.nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False),
            torch.nn.BatchNorm2d(channels_out))
        self.stride = stride
        self.pad = (channels_out - channels_in) // 2

    def forward(self, images):
        shortcut = images
        if self.pad > 0:
            shortcut = images[:, :, ::self.stride, ::self.stride]
            shortcut = torch.nn.functional.pad(shortcut, (0, 0, 0, 0, self.pad, self.pad))
        return torch.nn.functional.relu(self.convolutions(images) + shortcut, inplace=True)


def resnet20():
    layers = [torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False), torch.nn.BatchNorm2d(16), torch.nn.ReLU(inplace=True)]
    channels = 16
    for width in (16, 32, 64):
        for _ in range(3):
            layers.append(BasicBlock(channels, width, 1 if width == channels else 2))
            channels = width
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(64, 10))


def make_model(arguments):
    return resnet20() if arguments.model == "resnet20" else getattr(torchvision.models, arguments.model)(weights=None)


def make_step(arguments):
    layout = torch.channels_last if arguments.channels_last else torch.contiguous_format
    torch.manual_seed(1)
    model = make_model(arguments).train().to(memory_format=layout)
    if arguments.compile:
        model = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=1e-4)
    size = arguments.image_size or (32 if arguments.model == "resnet20" else 224)
    images = torch.rand(arguments.batch, 3, size, size).mul_(2).sub_(1).to(memory_format=layout)
    labels = torch.randint(0, 10 if arguments.model == "resnet20" else 1000, (arguments.batch,))
    loss_of = torch.nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.precision == "bf16"):
            loss = loss_of(model(images), labels)
        loss.backward()
        optimizer.step()

    return step


def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    step = make_step(arguments)
    for _ in range(arguments.warmup):
        step()
    rates = []
    for _ in range(arguments.steps):
        start = time.perf_counter()
        step()
        rates.append(arguments.batch / (time.perf_counter() - start))
    print(json.dumps({
        "benchmark": "pytorch_step",
        "model": arguments.model,
        "batch": arguments.batch,
        "threads": arguments.threads,
        "precision": arguments.precision,
        "channels_last": arguments.channels_last,
        "compiled": arguments.compile,
        "images_per_s": statistics.median(rates),
        "images_per_s_spread": {"min": min(rates), "max": max(rates)},
        "peak_resident_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "machine": platform.processor() or platform.machine(),
    }))


if __name__ == "__main__":
    main()
