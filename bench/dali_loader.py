#!/usr/bin/env python3
"""Images/s of a DALI pipeline on the CPU with random_resized_crop, flip and normalise, on class folders.

The process runs on --threads cores with as many threads of DALI. The antialias that Pillow has is switched on. Prints one JSON object.
"""
import argparse
import json
import os
import statistics
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--passes", type=int, default=1, help="timed passes over the folder, after one that is not timed")
    parser.add_argument("--decode", choices=["whole", "crop"], default="whole", help="crop: decode only what the crop needs")
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:arguments.threads])

    import nvidia.dali as dali
    from nvidia.dali import fn, types

    @dali.pipeline_def(batch_size=arguments.batch, num_threads=arguments.threads, device_id=None)
    def pictures():
        files, labels = fn.readers.file(file_root=arguments.folder, random_shuffle=True, name="files")
        if arguments.decode == "whole":
            images = fn.decoders.image(files, device="cpu", output_type=types.RGB)
            images = fn.random_resized_crop(images, size=arguments.image_size, antialias=True)
        else:
            images = fn.decoders.image_random_crop(files, device="cpu", output_type=types.RGB, random_area=[0.08, 1.0],
                                                   random_aspect_ratio=[0.75, 4.0 / 3.0], num_attempts=10)
            images = fn.resize(images, size=[arguments.image_size, arguments.image_size], antialias=True)
        images = fn.crop_mirror_normalize(images, mirror=fn.random.coin_flip(), dtype=types.FLOAT, output_layout="CHW",
                                          mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375])
        return images, labels

    pipeline = pictures()
    pipeline.build()
    size = pipeline.epoch_size("files")
    batches = -(-size // arguments.batch)
    rates = []
    for _ in range(1 + arguments.passes):
        begin = time.perf_counter()
        for _ in range(batches):
            pipeline.run()
        rates.append(batches * arguments.batch / (time.perf_counter() - begin))
    print(json.dumps({"benchmark": "dali_loader", "decode": arguments.decode, "threads": arguments.threads, "images": size,
                      "images_per_s": statistics.median(rates[1:]), "rates": rates[1:], "dali": dali.__version__}))


if __name__ == "__main__":
    main()
