"""The tensorproto format without TensorFlow: strict rules, limits, containers, damage."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.protos import block, field, shape_field, signed, varint
from tensorwire.codecs.tensorproto import TensorProto
from tensorwire.core import dtypes
from tensorwire.testing import strategies as tws


def proto(enum, dims, *parts):
    return field(1, 0, varint(enum)) + shape_field(dims) + b"".join(parts)


def packed(number, *values):
    return block(number, b"".join(signed(value) for value in values))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (proto(3, [3], packed(7, 1, -2, 3)), np.array([1, -2, 3], np.int32)),
        (proto(3, [2], field(7, 0, signed(-5)), field(7, 0, signed(6))), np.array([-5, 6], np.int32)),
        (proto(3, [3], packed(7, 1), field(7, 0, signed(2)), packed(7, 3)), np.array([1, 2, 3], np.int32)),
        (proto(3, [2, 2], packed(7, 9)), np.full((2, 2), 9, np.int32)),
        (proto(3, [0]), np.zeros(0, np.int32)),
        (proto(3, [0], block(4, b"")), np.zeros(0, np.int32)),
        (field(1, 0, varint(3)) + packed(7, 4), np.array(4, np.int32)),
        (proto(9, [2], packed(10, -(1 << 63), (1 << 63) - 1)), np.array([-(1 << 63), (1 << 63) - 1])),
        (proto(23, [1], packed(17, (1 << 64) - 1)), np.array([(1 << 64) - 1], np.uint64)),
        (proto(22, [1], packed(16, (1 << 32) - 1)), np.array([(1 << 32) - 1], np.uint32)),
        (proto(10, [2], packed(11, 1, 0)), np.array([True, False])),
        (proto(1, [2], block(5, np.array([1.5, -0.0], "<f4").tobytes())), np.array([1.5, -0.0], np.float32)),
        (proto(8, [1], block(9, np.array([1.5, 2.5], "<f4").tobytes())), np.array([1.5 + 2.5j], np.complex64)),
        (proto(19, [1], packed(13, 0x3C00)), np.array([1], np.float16)),
        (proto(29, [3], packed(7, -8, 7, -1)), np.array([-8, 7, -1]).astype(dtypes.named("int4").numpy)),
        (proto(30, [2], block(4, b"\x0f\x00")), np.array([15, 0]).astype(dtypes.named("uint4").numpy)),
        (proto(25, [2], block(18, b"\x38\x7f")), np.array([0x38, 0x7F], np.uint8).view(dtypes.named("float8_e4m3fn").numpy)),
        (proto(33, [1], block(18, b"\x02")), np.array([2], np.uint8).view(dtypes.named("float4_e2m1fn").numpy)),
        (proto(11, [2], packed(7, -1, 5)), np.array([-1, 5], np.int8)),
        (proto(15, [1], block(4, b"\xff\xff")), np.array([-1], np.int16)),
        (proto(7, [2], block(8, b"a"), block(8, b"")), tw.Strings.of([b"a", b""])),
        (proto(7, [2], block(4, b"\x01\x02abb")), tw.Strings.of([b"a", b"bb"])),
        (proto(7, [3], block(8, b"same")), tw.Strings.of([b"same"] * 3)),
        (block(8, b"x") + field(1, 0, varint(7)) + shape_field([1]), tw.Strings.of([b"x"])),
        (block(4, b"\x01\x00\x00\x00") + shape_field([1]) + field(1, 0, varint(3)) + field(3, 0, varint(0)), np.array([1], np.int32)),
    ],
)  # fmt: skip
def test_forms_that_mean_one_tensor(data, expected):
    for copy in (None, True):
        assert tw.equal(tw.loads(data, "tensorproto", copy=copy), expected)


@pytest.mark.parametrize(
    ("data", "error", "why"),
    [
        (proto(3, [3], packed(7, 1, 2)), tw.TruncatedError, "needs 3 values, not 2"),
        (proto(3, [3]), tw.TruncatedError, "values, not 0"),
        (proto(3, [1], packed(7, 1, 2)), tw.DecodeError, "more values"),
        (proto(3, [0], packed(7, 1)), tw.DecodeError, "more values"),
        (proto(3, [1], packed(10, 1)), tw.DecodeError, "field 10"),
        (proto(3, [1], packed(7, 1), block(4, bytes(4))), tw.DecodeError, "both tensor_content"),
        (proto(3, [2], block(4, bytes(4))), tw.TruncatedError, "8 bytes of tensor_content"),
        (proto(3, [1], block(4, bytes(8))), tw.DecodeError, "4 bytes of tensor_content"),
        (proto(6, [1], packed(7, 300)), tw.DecodeError, "does not fit"),
        (proto(6, [1], packed(7, -129)), tw.DecodeError, "does not fit"),
        (proto(3, [1], packed(7, 1 << 32)), tw.DecodeError, "does not fit"),
        (proto(4, [1], packed(7, -1)), tw.DecodeError, "does not fit"),
        (proto(19, [1], packed(13, 65536)), tw.DecodeError, "does not fit"),
        (proto(29, [1], packed(7, 8)), tw.DecodeError, "does not fit"),
        (proto(29, [1], block(4, b"\x10")), tw.DecodeError, "does not fit"),
        (proto(10, [1], packed(11, 2)), tw.DecodeError, "neither 0 nor 1"),
        (proto(10, [1], block(4, b"\x02")), tw.DecodeError, "neither 0 nor 1"),
        (proto(8, [1], block(9, bytes(4))), tw.TruncatedError, "needs 1 values, not 0"),
        (proto(8, [1], block(9, bytes(3))), tw.DecodeError, "packed run"),
        (proto(7, [2], block(8, b"a"), block(8, b"b"), block(8, b"c")), tw.DecodeError, "more values"),
        (proto(7, [3], block(8, b"a"), block(8, b"b")), tw.TruncatedError, "needs 3 strings, not 2"),
        (proto(7, [2], block(4, b"\x01\x05abb")), tw.TruncatedError, "past the end"),
        (proto(7, [2], block(4, b"\x01\x01abb")), tw.DecodeError, "more values"),
        (proto(7, [1 << 40], block(4, b"\x01")), tw.LimitError, "tensor"),
        (proto(7, [1 << 20], block(4, b"\x01")), tw.TruncatedError, "strings"),
        (proto(7, [1], packed(7, 1)), tw.DecodeError, "field 7"),
        (proto(3, [1 << 40, 1 << 40], block(4, b"")), tw.DecodeError, "is too large"),
        (proto(3, [1 << 62, 1 << 62, 0]), tw.DecodeError, "is too large"),
        (proto(3, [1 << 61, 0]), tw.DecodeError, "is too large"),
        (proto(3, [-1], block(4, b"")), tw.DecodeError, "negative"),
        (proto(3, [1] * 255, packed(7, 1)), tw.DecodeError, "254"),
        (proto(3, [1] * 100, packed(7, 1)), tw.DecodeError, "NumPy"),
        (proto(20, [], block(4, b"")), tw.DecodeError, "unsupported dtype"),
        (proto(99, [], block(4, b"")), tw.DecodeError, "unsupported dtype"),
        (proto(21, [], block(4, b"\x01x")), tw.DecodeError, "past the end"),
        (proto(21, []), tw.DecodeError, "not a ragged"),
        (proto(3, [1], packed(7, 1), block(99, b"")), tw.DecodeError, "unknown field"),
        (proto(3, [1], packed(7, 1), field(3, 5, bytes(4))), tw.DecodeError, "wire type"),
        (field(1, 0, varint(3)) + block(2, field(3, 0, b"\x01")) + packed(7, 1), tw.DecodeError, "unknown rank"),
        (field(1, 0, varint(3)) + block(2, block(2, block(2, b"\xff"))) + packed(7, 1), tw.DecodeError, "UTF-8"),
        (b"\x88\x80\x80\x80\x80\x00\x03" + shape_field([1]) + packed(7, 1), tw.DecodeError, "invalid protobuf tag"),
        (proto(3, [1], b"\x3a\x81\x80\x80\x80\x80\x00\x01"), tw.DecodeError, "varint"),
        (b"", tw.DecodeError, "dtype 0"),
        (b"\x00", tw.DecodeError, "invalid protobuf tag"),
        (b"\x08" + b"\xff" * 11, tw.DecodeError, "varint"),
    ],
)  # fmt: skip
def test_what_strict_reading_refuses(data, error, why):
    with pytest.raises(error, match=why) as caught:
        tw.loads(data, "tensorproto")
    assert caught.value.format == "tensorproto" and caught.value.offset is not None


def test_two_joined_protos_are_refused():
    a, b = (tw.dumps(np.zeros(n, np.float32), "tensorproto") for n in (2, 3))
    for joined in (a + a, a + b, tw.dumps(["x", np.zeros(2)], "tensorproto") * 2):
        with pytest.raises(tw.DecodeError, match="two concatenated messages"):
            tw.loads(joined)


class TestLimits:
    def test_eighteen_bytes_that_claim_two_gigabytes(self):
        bomb = proto(1, [1 << 29], block(5, bytes(4)))
        assert len(bomb) == 18
        with pytest.raises(tw.LimitError, match="expansion"):
            tw.loads(bomb)
        with pytest.raises(tw.LimitError):
            tw.loads(bomb, "tensorproto", tf_compat=True)
        with pytest.raises(tw.LimitError):
            tw.loads(proto(1, [1 << 29]), "tensorproto", tf_compat=True)
        with pytest.raises(tw.LimitError):
            tw.loads(proto(7, [1 << 24], block(8, b"abc")))

    def test_offsets_of_strings_count(self):
        many = proto(7, [1000], block(4, bytes(1000)))
        assert tw.loads(many).size == 1000
        with pytest.raises(tw.LimitError, match="tensor"):
            tw.loads(many, limits=tw.Limits(tensor=5000))

    def test_limits_can_be_raised_and_lowered(self):
        blob = proto(1, [1 << 10], block(5, bytes(4)))
        assert tw.loads(blob).shape == (1024,)
        with pytest.raises(tw.LimitError):
            tw.loads(blob, limits=tw.Limits(expansion=100, expansion_ratio=1))
        big = proto(4, [65 << 20], packed(7, 1))
        assert tw.loads(big, limits=tw.Limits(expansion=65 << 20)).nbytes == 65 << 20
        wide = proto(9, [1000], packed(10, *range(1000)))
        with pytest.raises(tw.LimitError, match="tensor"):
            tw.loads(wide, limits=tw.Limits(tensor=5000))
        many = tw.dumps([np.zeros(1)] * 10, "tensorproto")
        with pytest.raises(tw.LimitError, match="names"):
            tw.loads(many, limits=tw.Limits(names=9))

    def test_past_two_gigabytes_nothing_is_written(self):
        huge = np.zeros(1 << 31, np.uint8)  # the pages are never touched
        with pytest.raises(tw.EncodeError, match="safetensors"):
            TensorProto().encode(huge)
        with pytest.raises(tw.EncodeError, match="safetensors"):
            TensorProto().encode([huge[: 1 << 30], huge[: 1 << 30]])


class TestContainer:
    value = {
        "list": [np.arange(3), np.zeros((2, 2), np.float32)],
        "words": tw.Strings.of(["a", "é"]),
        "step": 7,
    }

    def test_tensorflow_would_see_strings(self):
        blob = tw.dumps(self.value, "tensorproto")
        strings = tw.io.parse_tensor(blob.replace(b"tensorwire/1", b"tensorwire/0"), "string")
        assert strings[0].startswith(b'{"dict":') and tw.equal(tw.loads(strings[1]), np.arange(3))

    def test_parts_may_lie_anywhere(self):
        """Views into the input where the bytes are aligned, and never a write into it."""
        blob = tw.dumps([np.arange(1000, dtype=np.uint8)], "tensorproto")
        found = tw.loads(blob)[0]
        assert np.shares_memory(found, np.frombuffer(blob, np.uint8)) and not found.flags.writeable
        assert tw.loads(bytearray(blob))[0].flags.writeable is False

    @pytest.mark.parametrize("where", ["spec", "part"])
    def test_damage_has_a_place(self, where):
        blob = tw.dumps(self.value, "tensorproto")
        at = blob.index(b'{"dict"') if where == "spec" else blob.index(b"\x08\x09\x12")
        bad = blob[:at] + b"\xff" + blob[at + 1 :]
        with pytest.raises(tw.DecodeError) as caught:
            tw.loads(bad, "tensorproto")
        assert at <= caught.value.offset < at + 8

    def test_string_tensor_that_looks_like_one(self):
        named = field(1, 0, varint(7)) + shape_field([1], ["tensorwire/1"])
        for body in (
            block(8, b"no json"),
            block(8, b'{"list":1}'),
            block(4, b"\x02{}"),
            b"",
            block(8, b"{}") + block(8, b""),
        ):
            with pytest.raises(tw.DecodeError):
                tw.loads(named + body)


@given(tws.values(), st.data())
def test_damage_gives_a_value_or_our_error(value, data):
    blob = tw.dumps(value, "tensorproto")
    at = data.draw(st.integers(0, max(len(blob) - 1, 0)))
    flipped = bytearray(blob)
    if blob:
        flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (blob[:at], bytes(flipped), blob + blob[:at]):
        for compat in (False, True):
            try:
                tw.loads(damaged, "tensorproto", tf_compat=compat)
            except tw.DecodeError as error:
                assert error.format == "tensorproto" and 0 <= error.offset <= len(damaged)


@given(st.binary(max_size=200))
def test_garbage(data):
    for format in ("tensorproto", "safetensors", ("safetensors", "tensorproto"), None):
        try:
            tw.loads(data, format)
        except (tw.DecodeError, tw.UnknownFormatError):
            pass
