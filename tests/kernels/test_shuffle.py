"""Byte shuffle: the kernels, their readable twins and NumPy's transpose agree, for any item, block,
size and place in memory.
"""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensorwire import _native as native
from tensorwire.wire.reference import shuffle as pure

ITEMS = st.one_of(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 40))


def transposed(data, item, block):
    """By the definition."""
    out = b""
    for at in range(0, len(data), block):
        part = data[at : at + block]
        whole = len(part) // item * item
        planes = [part[plane:whole:item] for plane in range(item)]
        out += b"".join(planes) + part[whole:]
    return out


def run(kernel, data, item, block):
    out = np.full(len(data), 0xA5, np.uint8)
    kernel(data, item, block, out)
    return out.tobytes()


@given(st.binary(max_size=3000), ITEMS, st.integers(1, 300), st.integers(0, 16))
def test_there_and_back(data, item, items, shift):
    data = memoryview(bytes(shift) + data)[shift:]  # at any place in memory
    block = item * items
    expected = transposed(bytes(data), item, block)
    for module in (native, pure):
        assert run(module.shuffle, data, item, block) == expected
        assert run(module.unshuffle, expected, item, block) == bytes(data)


@pytest.mark.parametrize("item", [1, 2, 3, 4, 8, 12, 16, 32])
@pytest.mark.parametrize("size", [0, 1, 15, 16 * 16, 64 * 16, 64 * 16 + 1, 100_000])
def test_sizes_around_lanes_and_lines(item, size):
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    for block in (item, 16 * item, 64 * item, 1000 * item):
        if size // block < 2000:
            expected = transposed(data, item, block)
            assert (
                run(native.shuffle, data, item, block)
                == run(pure.shuffle, data, item, block)
                == expected
            )
            assert (
                run(native.unshuffle, expected, item, block)
                == run(pure.unshuffle, expected, item, block)
                == data
            )


@given(st.integers(1, 20), st.integers(0, 300), st.integers(0, 1 << 20), st.integers(0, 1 << 30))
def test_planes_that_lie_apart(item, items, singles, seed):
    """A plane of one byte stands for a whole one."""
    rng = np.random.default_rng(seed)
    planes = [rng.integers(0, 256, 1 if singles >> i & 1 else items, np.uint8) for i in range(item)]
    expected = np.stack([np.broadcast_to(plane, items) for plane in planes], axis=1).tobytes()
    for module in (native, pure):
        out = np.full(item * items, 0xA5, np.uint8)
        module.merge_planes([plane.tobytes() for plane in planes], out)
        assert out.tobytes() == expected


def test_an_array_and_its_transpose():
    x = np.random.default_rng(0).standard_normal(10_000)
    out = np.empty(x.nbytes, np.uint8)
    native.shuffle(x, 8, x.nbytes, out)
    assert out.tobytes() == x.view(np.uint8).reshape(-1, 8).T.tobytes()


@pytest.mark.parametrize("module", [native, pure])
def test_mistakes(module):
    data, read_only = bytes(12), np.zeros(12, np.uint8)
    read_only.flags.writeable = False
    both = np.zeros(20, np.uint8)
    for kernel in (module.shuffle, module.unshuffle):
        for item, block in ((0, 4), (4, 0), (4, 6), (5, 4)):
            with pytest.raises(ValueError, match="whole number of items"):
                kernel(data, item, block, np.zeros(12, np.uint8))
        for size in (11, 13):
            with pytest.raises(ValueError, match="as many bytes"):
                kernel(data, 4, 4, np.zeros(size, np.uint8))
        with pytest.raises(ValueError, match="writable"):
            kernel(data, 4, 4, read_only)
        with pytest.raises(ValueError, match="other memory"):
            kernel(both[:12], 4, 4, both[8:])
        for out in (
            np.zeros(3, np.float32),
            np.zeros((3, 4), np.uint8),
            np.zeros(24, np.uint8)[::2],
            bytearray(12),
        ):
            with pytest.raises(TypeError):
                kernel(data, 4, 4, out)
        for item in (-1, 1 << 70):
            with pytest.raises((TypeError, OverflowError, ValueError)):
                kernel(data, item, 4, np.zeros(12, np.uint8))
    for planes in (
        [],
        [bytes(3)],
        [bytes(12), bytes(12)],
        [bytes(1)] * 257,
        [bytes(4), bytes(4), bytes(5)],
    ):
        with pytest.raises(ValueError, match="plane"):
            module.merge_planes(planes, np.zeros(12, np.uint8))
    with pytest.raises(ValueError, match="other memory"):
        module.merge_planes([both[8:14], bytes(6)], both[:12])
    with pytest.raises(ValueError, match="writable"):
        module.merge_planes([bytes(6), bytes(6)], read_only)


def test_two_threads_at_once():
    """Without the GIL, and each in memory of its own."""
    rng = np.random.default_rng(1)
    data = [rng.integers(0, 256, 1 << 20, np.uint8) for _ in range(4)]
    outs, backs = (
        [np.empty(1 << 20, np.uint8) for _ in data],
        [np.empty(1 << 20, np.uint8) for _ in data],
    )

    def work(i):
        for _ in range(5):
            native.shuffle(data[i], 4, 1 << 18, outs[i])
            native.unshuffle(outs[i], 4, 1 << 18, backs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, given_ in enumerate(data):
        assert backs[i].tobytes() == given_.tobytes()
        assert outs[i].tobytes() == run(pure.shuffle, given_, 4, 1 << 18)
