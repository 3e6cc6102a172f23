"""Files of every kind that `tensorwire view` shows, for its tests and for the screenshots of
docs/view.md.
"""

import math
import os
import zlib

import numpy as np

import tensorwire as tw
from tensorwire.explore.images import png

HOSTILE = "<script>window.hacked = 1</script><img src=x onerror=window.hacked=1>"
BIG = (50_000, 50_000)


def attention(size=192):
    """Something that looks like the attention of a model: a diagonal, some columns that everything
    looks at, and noise.
    """
    random = np.random.default_rng(7)
    rows, columns = np.mgrid[:size, :size] / size
    out = (
        np.exp(-((rows - columns) ** 2) * 90)
        + 0.35 * np.exp(-((columns - 0.32) ** 2) * 900)
        + 0.01 * random.random((size, size))
    )
    return (out / out.sum(1, keepdims=True)).astype(np.float32)


def pictures(count=24, size=40):
    """Small colour pictures: discs and stripes."""
    y, x = np.mgrid[:size, :size] / size - 0.5
    out = np.zeros((count, size, size, 3))
    for i in range(count):
        turn, far = i * 0.7, 0.16 + 0.3 * (i % 5) / 5
        disc = np.hypot(x - 0.2 * math.cos(turn), y - 0.2 * math.sin(turn)) < far
        stripes = np.sin((x * math.cos(turn) + y * math.sin(turn)) * (14 + i)) > 0
        for channel in range(3):
            shade = 0.5 + 0.5 * math.cos(turn * 1.3 + channel * 2.1)
            out[i, ..., channel] = np.where(disc, shade, 0.85 - 0.25 * stripes * (1 - shade))
    return (out * 255).astype(np.uint8)


def tensors(folder):
    """One file with every kind of tensor, and the odd ones."""
    random = np.random.default_rng(3)
    nan = random.normal(size=(40, 60)).astype(np.float32)
    nan[5:9, 10:20], nan[30, 30], nan[31, 31] = np.nan, np.inf, -np.inf
    words = [
        f"{word}-{i}" for i, word in enumerate(["wire", "tensor", "Größe", "bytes", "shape"] * 400)
    ]
    indices = np.argwhere(
        random.random((300, 400))
        < np.exp(-np.abs(np.subtract.outer(np.arange(300), np.arange(400) * 0.75)) / 9) * 0.5
    )
    value = tw.Bundle(
        {
            "attention": attention(),
            "layers/0/kernel": random.normal(size=(6, 32, 48)).astype(np.float32),
            "layers/0/bias": np.cumsum(random.normal(size=4000)).astype(np.float32),
            "pictures": pictures(),
            "pictures_chw": pictures(6).transpose(0, 3, 1, 2) / np.float32(255),
            "holes": nan,
            "mask": random.random((64, 64)) > 0.6,
            "ids": random.integers(-(2**62), 2**62, size=(8, 5)),
            "spectrum": (
                (random.normal(size=(16, 16)) + 1j * random.normal(size=(16, 16))).astype(
                    np.complex64
                )
            ),
            "scalar": np.array(0.1),
            "nothing": np.zeros((0, 4), np.float32),
            "words": tw.Strings.of(words),
            "photos": tw.Strings.of([png(one) for one in pictures(4)]),
            "clicks": tw.Sparse(
                indices, random.normal(size=len(indices)).astype(np.float32), (300, 400)
            ),
            "tokens": tw.Ragged.of([list(range(int(n))) for n in random.gamma(3, 4, 500)]),
            HOSTILE: tw.Strings.of([HOSTILE, "</textarea><svg onload=window.hacked=1>"]),
        },
        {"model": "nmt-v2", "note": HOSTILE},
    )
    path = os.path.join(folder, "predictions.safetensors")
    tw.save(path, value)
    return path, value


def records(folder, count=500):
    """Examples with numbers, text and a picture each."""
    random = np.random.default_rng(5)
    images = pictures(12, 48)
    rows = [
        {
            "label": int(i % 10),
            "score": random.normal(size=4).astype(np.float32).tolist(),
            "title": f"record {i}",
            "photo": png(images[i % 12]),
            **({"tags": [b"a", b"b"][: i % 3]} if i % 2 else {}),
        }
        for i in range(count)
    ]
    path = os.path.join(folder, "train.tfrecord")
    tw.write_examples(path, rows, schema_file=False)
    return path


def damaged(folder, source):
    """The same records, with two places overwritten and the end cut off."""
    with open(source, "rb") as file:
        data = bytearray(file.read())
    data[2000:2040] = bytes(40)
    data[len(data) // 2 : len(data) // 2 + 8] = b"\xff" * 8
    path = os.path.join(folder, "damaged.tfrecord")
    with open(path, "wb") as file:
        file.write(data[:-7])
    return path


def changed(folder, value):
    """A second file to compare the first one with."""
    random = np.random.default_rng(11)
    kernel = value["layers/0/kernel"].copy()
    kernel[2, 8:20, 10:30] += random.normal(size=(12, 20)).astype(np.float32) * 0.1
    path = os.path.join(folder, "predictions-2.npz")
    tw.save(path, {"layers/0/kernel": kernel, "attention": value["attention"]})
    return path


def big(folder, shape=BIG):
    """10 GB of float32, of which the disk holds a few kilobytes: a header, a hole, and some numbers
    here and there.
    """
    import json

    about = {"w": {"dtype": "F32", "shape": list(shape), "data_offsets": [0, math.prod(shape) * 4]}}
    head = json.dumps(about).encode()
    head += b" " * (-(8 + len(head)) % 64)
    path = os.path.join(folder, "big.safetensors")
    with open(path, "wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        file.truncate(8 + len(head) + math.prod(shape) * 4)
        for row in range(0, shape[0], max(1, shape[0] // 256 + 1) * 5):
            file.seek(8 + len(head) + row * shape[1] * 4)
            file.write(
                np.sin(np.arange(min(shape[1], 1 << 20)) / 4000 + row / 9000)
                .astype("<f4")
                .tobytes()
            )
    return path


def hostile(folder):
    """Files that are broken, or that lie, under names that would like to be HTML."""
    os.makedirs(folder, exist_ok=True)
    good = tw.dumps({"x": np.arange(100.0)})
    lies = {
        "cut.safetensors": good[:-60],
        "garbage.npz": b"PK\x03\x04" + os.urandom(500),
        "huge.npy": (
            b"\x93NUMPY\x01\x00"
            + (118).to_bytes(2, "little")
            + b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }".ljust(117)
            + b"\n"
        ),
        "bomb.json.gz": _gzip(b"[" * 2_000_000),
        "empty.safetensors": b"",
        "<img src=x onerror=alert(1)>.safetensors": good,
        "broken.tfrecord": os.urandom(300),
    }
    for name, data in lies.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)
    return sorted(lies)


def _gzip(data):
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def everything(folder, count=500):
    """A folder as somebody might have it."""
    folder = os.fspath(folder)
    _, value = tensors(folder)
    changed(folder, value)
    damaged(folder, records(folder, count))
    hostile(os.path.join(folder, "strange"))
    return value


if __name__ == "__main__":
    import sys

    os.makedirs(sys.argv[1], exist_ok=True)
    everything(sys.argv[1])
    big(sys.argv[1])
