#!/usr/bin/env python3
"""Times ResNet-50's inference in PyTorch or ONNX Runtime: the peer of `lockstep bench step --inference`. Prints one JSON object.

PyTorch runs torchvision's model in evaluation mode, as it is, channels-last or compiled. ONNX Runtime runs the same layers from a graph
made here, with the optimizations that it makes by itself (batch norms folded, its own layout). Weights are random; no speed depends on them.
"""
import argparse
import json
import platform
import statistics
import time


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=["pytorch", "pytorch-channels-last", "pytorch-compile", "onnxruntime"])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1)
    return parser.parse_args()


def pytorch(arguments):
    import torch
    import torchvision
    torch.set_num_threads(arguments.threads)
    layout = torch.channels_last if arguments.engine.endswith("last") else torch.contiguous_format
    model = torchvision.models.resnet50(weights=None).eval().to(memory_format=layout)
    images = torch.rand(arguments.batch, 3, 224, 224).to(memory_format=layout)
    if arguments.engine.endswith("compile"):
        model = torch.compile(model)

    def step():
        with torch.inference_mode():
            model(images)

    return step, f"torch {torch.__version__}"


def resnet50_graph(batch):
    """torchvision's resnet50 as ONNX nodes."""
    import numpy
    from onnx import TensorProto, helper, numpy_helper
    random = numpy.random.default_rng(1)
    nodes, weights = [], []

    def constant(name, array):
        weights.append(numpy_helper.from_array(array.astype(numpy.float32), name))
        return name

    def conv(name, source, channels_in, channels_out, kernel, stride, relu):
        scale = (2.0 / (channels_in * kernel * kernel)) ** 0.5
        weight = constant(name + ".w", random.normal(0, scale, (channels_out, channels_in, kernel, kernel)))
        nodes.append(helper.make_node("Conv", [source, weight], [name], kernel_shape=[kernel, kernel], strides=[stride, stride],
                                      pads=[kernel // 2] * 4))
        statistics_of = [constant(f"{name}.{part}", numpy.full(channels_out, value))
                         for part, value in (("scale", 1), ("shift", 0), ("mean", 0), ("variance", 1))]
        nodes.append(helper.make_node("BatchNormalization", [name, *statistics_of], [name + ".bn"]))
        if relu:
            nodes.append(helper.make_node("Relu", [name + ".bn"], [name + ".relu"]))
        return name + (".relu" if relu else ".bn")

    top = conv("conv1", "images", 3, 64, 7, 2, True)
    nodes.append(helper.make_node("MaxPool", [top], ["maxpool"], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4))
    top, channels = "maxpool", 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            name, stride = f"layer{stage + 1}.{block}", 2 if stage > 0 and block == 0 else 1
            main = conv(name + ".conv1", top, channels, width, 1, 1, True)
            main = conv(name + ".conv2", main, width, width, 3, stride, True)
            main = conv(name + ".conv3", main, width, 4 * width, 1, 1, False)
            shortcut = conv(name + ".downsample", top, channels, 4 * width, 1, stride, False) if block == 0 else top
            nodes.append(helper.make_node("Add", [main, shortcut], [name + ".add"]))
            nodes.append(helper.make_node("Relu", [name + ".add"], [name + ".out"]))
            top, channels = name + ".out", 4 * width
    nodes.append(helper.make_node("GlobalAveragePool", [top], ["avgpool"]))
    nodes.append(helper.make_node("Flatten", ["avgpool"], ["flat"]))
    nodes.append(helper.make_node("Gemm", ["flat", constant("fc.w", random.normal(0, 0.01, (1000, 2048))), constant("fc.b", numpy.zeros(1000))],
                                  ["logits"], transB=1))
    graph = helper.make_graph(nodes, "resnet50", [helper.make_tensor_value_info("images", TensorProto.FLOAT, [batch, 3, 224, 224])],
                              [helper.make_tensor_value_info("logits", TensorProto.FLOAT, [batch, 1000])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def onnxruntime(arguments):
    import numpy
    import onnxruntime as runtime
    options = runtime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = runtime.InferenceSession(resnet50_graph(arguments.batch).SerializeToString(), options, providers=["CPUExecutionProvider"])
    images = numpy.random.default_rng(2).random((arguments.batch, 3, 224, 224), dtype=numpy.float32)
    return lambda: session.run(None, {"images": images}), f"onnxruntime {runtime.__version__}"


def main():
    arguments = parse_arguments()
    step, version = onnxruntime(arguments) if arguments.engine == "onnxruntime" else pytorch(arguments)
    for _ in range(arguments.warmup):
        step()
    rates = []
    for _ in range(arguments.steps):
        start = time.perf_counter()
        step()
        rates.append(arguments.batch / (time.perf_counter() - start))
    print(json.dumps({"benchmark": "inference_peer", "engine": arguments.engine, "version": version, "model": "resnet50",
                      "batch": arguments.batch, "threads": arguments.threads, "images_per_s": statistics.median(rates),
                      "min": min(rates), "max": max(rates), "machine": platform.processor() or platform.machine()}))


if __name__ == "__main__":
    main()
