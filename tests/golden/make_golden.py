#!/usr/bin/env python3
"""Writes the golden values of tests/unit/nn/golden_test.cc with PyTorch in double precision, from torchvision's networks.

    python3 tests/golden/make_golden.py [SET...]    (PyTorch >= 1.13, torchvision; Debian: python3-torch, python3-torchvision)

Weights, images and labels follow from the formula in `noise`, which the test computes too; only results are kept here.
"""
import copy
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
APART = {"bn_scale": [0.5, 0.1], "bn_shift": [1.25, 0.125], "fc_weight": 0.25}
MIXED = {"bn_scale": [0.5, 0.25], "bn_shift": [0.25, 0.25], "fc_weight": 0.25}
ORDINARY = {"bn_scale": [1.0, 0.5], "bn_shift": [0.0, 0.25], "fc_weight": 1.0}

# Where a value lies within rounding of zero, ReLU lets it pass here and stops it there, and one such element moves the gradients
# below it by per cents: no fp32 program could be compared. So both networks are kept off these bends, measurably: `relu_margin` of a
# golden file is the smallest distance from zero of any value that a ReLU meets, `fp32_error` what PyTorch in single precision
# reaches on the same numbers, measured like the test does.
# - ResNet-50, one step: each channel's shift is moved by the multiple of 1/128 below 1/4 that keeps zero farthest from all its
#   values (`shift_moves`, a letter a channel).
# - AlexNet, VGG-A and the paper's GoogLeNet, one step: the same with the shift or bias of every layer in front of a ReLU. They have max pools in
#   number, which bend where two values of a window are equal: the images are those of the first salt whose `pool_margin`, the smallest
#   lead of a positive maximum, is SMALLEST_LEAD.
# - ResNet-20, ten steps, whose weights move: each step takes the first batch of a numbered row that keeps SMALLEST_MARGIN (`salts`).
MOVE_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
MOVES = (torch.arange(64, dtype=torch.float64) - 32) / 128
SMALLEST_MARGIN = 1e-5
SMALLEST_LEAD = 2e-6
TOLERANCE = 1e-4  # of the test: single precision must meet it too


def norm_names(model):
    return {name for name, module in model.named_modules() if isinstance(module, torch.nn.BatchNorm2d)}


def parameter(name, shape, start, is_norm):
    u = noise(name, math.prod(shape))
    if len(shape) >= 2:  # activations keep their scale through ReLU
        value = u * np.float32(math.sqrt(6.0 / math.prod(shape[1:])))
        if name == "fc.weight":
            value = value * np.float32(start["fc_weight"])
    elif not is_norm:
        value = u * np.float32(0.125)
    elif name.endswith(".weight"):
        value = np.float32(start["bn_scale"][0]) + u * np.float32(start["bn_scale"][1])
    else:
        value = np.float32(start["bn_shift"][0]) + u * np.float32(start["bn_shift"][1])
        if name.endswith(".bn1.bias"):  # the first batch norm of a block turns some channels off
            value = np.where(u < np.float32(-0.25), -value, value)
    return torch.from_numpy(value.reshape(shape).astype(np.float64))


def fill(model, start):
    norms = norm_names(model)
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.copy_(parameter(name, tuple(tensor.shape), start, name.rpartition(".")[0] in norms))


def batch(prefix, images, size, classes):
    pixels = noise(f"{prefix}.images", images * 3 * size * size) * np.float32(math.sqrt(3.0))
    labels = hashed(f"{prefix}.labels", images) % classes
    return torch.from_numpy(pixels.reshape(images, 3, size, size).astype(np.float64)), torch.from_numpy(labels.astype(np.int64))


def summary(name, tensor):
    """Euclidean norm and eight elements at places that follow from the name."""
    flat = tensor.detach().reshape(-1).double()
    places = hashed(name + ".places", 8) % flat.numel()
    return {"norm": float(f"{flat.norm().item():.9g}"),
            "samples": [float(f"{flat[int(place)].item():.9g}") for place in places]}


def numbers(tensor):
    return [float(f"{value:.9g}") for value in tensor.detach().reshape(-1).tolist()]


def margins_of(values):
    """Of each move: how far zero then is from the nearest of the values."""
    ordered = values.sort()[0]
    right = torch.searchsorted(ordered, -MOVES)
    left_gap = (ordered[(right - 1).clamp(min=0)] + MOVES).abs()
    right_gap = (ordered[right.clamp(max=len(ordered) - 1)] + MOVES).abs()
    return torch.minimum(left_gap, right_gap)


def move_off_bends(model, images):
    """Moves each shift in front of a ReLU, first layers first. Returns the letters and the smallest margin."""
    letters, margins, handles = {}, [], []

    def watch(relu, norms):
        waiting = list(norms)

        def move(_, inputs):
            name, norm = waiting.pop(0)
            of_channels = [margins_of(channel) for channel in inputs[0].transpose(0, 1).flatten(1)]
            chosen = torch.tensor([int(margin.argmax()) for margin in of_channels])
            letters[name + ".bias"] = "".join(MOVE_LETTERS[index] for index in chosen)
            margins.append(min(margin.max().item() for margin in of_channels))
            norm.bias += MOVES[chosen]
            return inputs[0] + MOVES[chosen][None, :, None, None]

        handles.append(relu.register_forward_pre_hook(move))

    watch(model.relu, [("bn1", model.bn1)])
    for name, block in model.named_modules():
        if isinstance(block, torchvision.models.resnet.Bottleneck):
            watch(block.relu, [(f"{name}.bn{number}", getattr(block, f"bn{number}")) for number in (1, 2, 3)])
    with torch.no_grad():
        model(images)
    for handle in handles:
        handle.remove()
    return letters, min(margins)


def gradients(model, images, labels):
    answers = model(images)
    heads = answers if isinstance(answers, tuple) else (answers,)  # the network's own first, then auxiliary ones
    logits = heads[0]
    loss = sum(weight * torch.nn.functional.cross_entropy(head, labels, reduction="sum")
               for head, weight in zip(heads, (1.0, 0.3, 0.3)))
    loss.backward()
    return {"loss": loss.item(), "logits": numbers(logits),
            "gradients": {name: summary(name, tensor.grad) for name, tensor in model.named_parameters()}}


def error(actual, golden, count, floor):
    """Of one tensor, as the test measures it: norm and samples."""
    norm = max(golden["norm"], floor)
    pairs = zip(actual["samples"], golden["samples"])
    return max([abs(actual["norm"] - golden["norm"]) / norm] +
               [abs(a - b) / max(abs(b), norm / math.sqrt(count)) for a, b in pairs])


def norm_of_pair(golden, name, norms):
    """A batch norm's scale and shift are measured as one vector (the reason stands in the test)."""
    stem = name.rpartition(".")[0]
    if stem not in norms:
        return golden["gradients"][name]["norm"]
    return math.hypot(*(golden["gradients"][f"{stem}.{part}"]["norm"] for part in ("weight", "bias")))


def gradient_error(model, actual, golden):
    wanted = np.array(golden["logits"])
    errors = [abs(actual["loss"] - golden["loss"]) / golden["loss"],
              np.linalg.norm(np.array(actual["logits"]) - wanted) / np.linalg.norm(wanted)]
    norms = norm_names(model)
    for name, tensor in model.named_parameters():
        floor = norm_of_pair(golden, name, norms)
        errors.append(error(actual["gradients"][name], golden["gradients"][name], tensor.numel(), floor))
    return float(max(errors))


def resnet50_gradients(size):
    images_per_batch = 2
    start = {64: APART, 224: MIXED}[size]  # small maps: few values a channel, which batch norm must not magnify
    model = torchvision.models.resnet50().double().train()
    fill(model, start)
    images, labels = batch("resnet50", images_per_batch, size, 1000)
    letters, margin = move_off_bends(model, images)
    single = copy.deepcopy(model).float()
    golden = gradients(model, images, labels)
    single_error = gradient_error(model, gradients(single, images.float(), labels), golden)
    return {"batch": images_per_batch, "image_size": size, "classes": 1000, "start": start, "shift_moves": letters,
            "relu_margin": margin, "fp32_error": single_error, **golden}


HIDDEN = 256  # instead of 4096 features in the classifiers of AlexNet and VGG


def with_small_classifier(model, places, features):
    """The classifier takes the last feature map as it is."""
    model.avgpool = torch.nn.Identity()
    for place, (before, after) in zip(places, ((features, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 10))):
        model.classifier[place] = torch.nn.Linear(before, after)
    return model


def small_alexnet(size):
    return with_small_classifier(torchvision.models.alexnet(), (1, 4, 6), 256 * {64: 1}[size])


def small_vgg_a(size):
    return with_small_classifier(torchvision.models.vgg11(), (0, 3, 6), 512 * {32: 1}[size])


def paper_head(self, x):
    """The auxiliary head with the paper's pool: 5x5 at stride 3, or the whole map where that is smaller."""
    x = self.conv(torch.nn.functional.avg_pool2d(x, min(5, x.shape[2]), 3))
    return self.fc2(torch.nn.functional.relu(self.fc1(torch.flatten(x, 1))))


LRN_ALPHA = 1.0  # of GoogLeNet, so that its effect is seen


def paper_googlenet(size):
    """torchvision's GoogLeNet made into the paper's: biases for batch norms, 5x5 convolutions, local response normalisation."""
    model = torchvision.models.googlenet(num_classes=10, aux_logits=True, transform_input=False, init_weights=False)
    sys.modules["torchvision.models.googlenet"].InceptionAux.forward = paper_head
    for name, module in list(model.named_modules()):
        if name.endswith("conv") and isinstance(module, torch.nn.Conv2d):
            block = model.get_submodule(name.rpartition(".")[0])
            kernel, padding = (5, 2) if "branch3.1" in name else (module.kernel_size, module.padding)
            block.conv = torch.nn.Conv2d(module.in_channels, module.out_channels, kernel, module.stride, padding)
            block.bn = torch.nn.Identity()
    norm = torch.nn.LocalResponseNorm(5, LRN_ALPHA)
    model.maxpool1 = torch.nn.Sequential(model.maxpool1, norm)
    model.maxpool2 = torch.nn.Sequential(norm, model.maxpool2)
    model.maxpool4 = torch.nn.MaxPool2d(3, 2, ceil_mode=True)
    for head in (model.aux1, model.aux2):
        head.fc1 = torch.nn.Linear(128 * {64: 1}[size], 1024)
    return model


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model


def in_front_of_relu(model):
    """Batch norms; layers with a bias of their own but for the last of each head."""
    kinds = (torch.nn.BatchNorm2d, torch.nn.Conv2d, torch.nn.Linear)
    last = ("classifier.6", "fc", "aux1.fc2", "aux2.fc2")
    return [(name, module) for name, module in model.named_modules()
            if isinstance(module, kinds) and module.bias is not None and name not in last]


def lead_of(pool, values):
    """The smallest lead of a positive maximum over the second largest of its window.

    No bends are two zeros, because ReLU stops both, and two pixels that are equal in all channels because the pool before them saw the
    same maxima (GoogLeNet's smallest maps): whichever is taken, the gradients are the same.
    """
    pads = []
    for axis in (3, 2):
        room = values.shape[axis] + 2 * pool.padding - pool.kernel_size
        pads += [pool.padding, pool.padding + (-room % pool.stride if pool.ceil_mode else 0)]
    padded = torch.nn.functional.pad(values, pads, value=-math.inf)
    windows = padded.unfold(2, pool.kernel_size, pool.stride).unfold(3, pool.kernel_size, pool.stride).flatten(4)
    largest = windows.topk(2, dim=4)[0]
    lead = largest[..., 0] - largest[..., 1]
    return lead[(largest[..., 0] > 0) & (lead > 1e-12)].min().item()


def move_layers_off_bends(model, images):
    """As move_off_bends, for every layer in front of a ReLU. Returns the letters, the smallest margin and the smallest lead."""
    letters, margins, leads, handles = {}, [], [], []

    def mover(name):
        def move(module, _, values):
            of_channels = [margins_of(channel) for channel in values.transpose(0, 1).flatten(1)]
            chosen = torch.tensor([int(margin.argmax()) for margin in of_channels])
            letters[name + ".bias"] = "".join(MOVE_LETTERS[index] for index in chosen)
            margins.append(min(margin.max().item() for margin in of_channels))
            module.bias += MOVES[chosen]
            return values + MOVES[chosen].reshape(1, -1, *(1,) * (values.dim() - 2))

        return move

    for name, module in in_front_of_relu(model):
        handles.append(module.register_forward_hook(mover(name)))
    for module in model.modules():
        if isinstance(module, torch.nn.MaxPool2d):
            handles.append(module.register_forward_pre_hook(lambda pool, inputs: leads.append(lead_of(pool, inputs[0]))))
    with torch.no_grad():
        model(images)
    for handle in handles:
        handle.remove()
    return letters, min(margins), min(leads)


def classic_gradients(arch, make, size):
    for salt in range(1000):
        model = without_dropout(make(size)).double().train()
        fill(model, APART)
        images, labels = batch(f"{arch}.{salt}", 2, size, 10)
        letters, margin, lead = move_layers_off_bends(model, images)
        if lead >= SMALLEST_LEAD:
            break
    single = copy.deepcopy(model).float()
    golden = gradients(model, images, labels)
    single_error = gradient_error(model, gradients(single, images.float(), labels), golden)
    return {"batch": 2, "image_size": size, "classes": 10, "hidden": HIDDEN, "start": APART, "salt": salt, "shift_moves": letters,
            "relu_margin": margin, "pool_margin": lead, "fp32_error": single_error, **golden}


def evaluation(arch, variant, make, size):
    """Logits and loss with running statistics 0 and 1; no gradients, so no bends either."""
    model = make(num_classes=10, aux_logits=False, init_weights=False).double().eval()
    fill(model, APART)
    images, labels = batch(arch, 2, size, 10)
    answers = []
    with torch.no_grad():
        for kind in (torch.float64, torch.float32):
            logits = copy.deepcopy(model).to(kind)(images.to(kind))
            answers.append((logits, torch.nn.functional.cross_entropy(logits, labels, reduction="sum").item()))
    (logits, loss), (single, _) = answers
    return {"batch": 2, "image_size": size, "classes": 10, "start": APART, "variant": variant, "loss": loss,
            "fp32_error": ((single - logits).norm() / logits.norm()).item(), "logits": numbers(logits)}


class BasicBlock(torch.nn.Module):
    """Residual block whose shortcut subsamples and pads channels on both sides (option A)."""

    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(channels_out)
        self.conv2 = torch.nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(channels_out)
        self.relu = torch.nn.ReLU()
        self.stride = stride
        self.pad = (channels_out - channels_in) // 2

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        shortcut = torch.nn.functional.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, self.pad, self.pad))
        return self.relu(y + shortcut)


class ResNet20(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(16)
        self.relu = torch.nn.ReLU()
        self.layer1 = torch.nn.Sequential(*[BasicBlock(16, 16, 1) for _ in range(3)])
        self.layer2 = torch.nn.Sequential(BasicBlock(16, 32, 2), *[BasicBlock(32, 32, 1) for _ in range(2)])
        self.layer3 = torch.nn.Sequential(BasicBlock(32, 64, 2), *[BasicBlock(64, 64, 1) for _ in range(2)])
        self.fc = torch.nn.Linear(64, 10)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean(dim=(2, 3)))


RATE, MOMENTUM, WEIGHT_DECAY = 0.002, 0.9, 0.02  # so that ten steps of decay are visible to the test


def sgd(model):
    decayed = [tensor for tensor in model.parameters() if tensor.dim() > 1]
    exempt = [tensor for tensor in model.parameters() if tensor.dim() == 1]
    return torch.optim.SGD([{"params": decayed, "weight_decay": WEIGHT_DECAY}, {"params": exempt, "weight_decay": 0.0}],
                           lr=RATE, momentum=MOMENTUM, nesterov=True)


def relu_margin(model, images):
    margins = []
    handles = [module.register_forward_pre_hook(lambda _, inputs: margins.append(inputs[0].abs().min().item()))
               for module in model.modules() if isinstance(module, torch.nn.ReLU)]
    with torch.no_grad():
        copy.deepcopy(model)(images)  # the copy keeps the running statistics out of it
    for handle in handles:
        handle.remove()
    return min(margins)


def take_step(model, optimizer, images, labels):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


def weights(model):
    return {name: tensor for name, tensor in model.state_dict().items() if not name.endswith("num_batches_tracked")}


def resnet20_steps(size):
    images_per_step = {16: 8, 32: 2}[size]
    model = ResNet20().double().train()
    fill(model, ORDINARY)
    single = copy.deepcopy(model).float()
    optimizer, single_optimizer = sgd(model), sgd(single)
    losses, single_losses, salts, margins = [], [], [], []
    for step in range(10):
        for salt in range(1000):
            images, labels = batch(f"resnet20.{step}.{salt}", images_per_step, size, 10)
            margin = relu_margin(model, images)
            if margin >= SMALLEST_MARGIN:
                break
        salts.append(salt)
        margins.append(margin)
        losses.append(take_step(model, optimizer, images, labels))
        single_losses.append(take_step(single, single_optimizer, images.float(), labels))
    final = {name: summary(name, tensor) for name, tensor in weights(model).items()}
    errors = [abs(a - b) / b for a, b in zip(single_losses, losses)]
    errors += [error(summary(name, tensor), final[name], tensor.numel(), 0.0) for name, tensor in weights(single).items()]
    return {"batch": images_per_step, "image_size": size, "classes": 10, "start": ORDINARY, "rate": RATE, "momentum": MOMENTUM,
            "weight_decay": WEIGHT_DECAY, "statistics_keep": 0.9, "salts": salts, "relu_margin": min(margins),
            "fp32_error": max(errors), "losses": losses, "final": final}


def write(name, golden):
    bend = f"nearest to a bend {golden['relu_margin']:.1e}; " if "relu_margin" in golden else ""
    print(f"{name}: {bend}single precision differs by {golden['fp32_error']:.1e}")
    if golden["fp32_error"] > TOLERANCE:
        raise SystemExit(f"{name}: single precision misses {TOLERANCE:g}, so the test would too; choose other start values")
    golden["made_by"] = f"make_golden.py, PyTorch {torch.__version__}, torchvision {torchvision.__version__}, double precision"
    with open(HERE / name, "w") as file:
        json.dump(golden, file, separators=(",", ":"))
        file.write("\n")


def main():
    torch.set_num_threads(2)
    makers = {"resnet50": resnet50_gradients, "resnet20_sgd": resnet20_steps,
              "alexnet": lambda size: classic_gradients("alexnet", small_alexnet, size),
              "vgg_a": lambda size: classic_gradients("vgg_a", small_vgg_a, size),
              "googlenet": lambda size: {"variant": "lrn", "lrn_alpha": LRN_ALPHA,
                                         **classic_gradients("googlenet", paper_googlenet, size)},
              "googlenet_evaluation": lambda size: evaluation("googlenet", "bn_no_aux", torchvision.models.googlenet, size),
              "inception_v3_evaluation": lambda size: evaluation("inception_v3", "no_aux", torchvision.models.inception_v3, size)}
    for name in sys.argv[1:] or ("resnet50_64", "resnet50_224", "resnet20_sgd_16", "resnet20_sgd_32", "alexnet_64", "vgg_a_32",
                                 "googlenet_64", "googlenet_evaluation_64", "inception_v3_evaluation_107"):
        network, _, size = name.rpartition("_")
        write(f"{name}.json", makers[network](int(size)))


if __name__ == "__main__":
    main()
