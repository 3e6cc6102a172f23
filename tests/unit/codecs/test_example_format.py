"""The example format: one tf.train.Example, against the real TensorFlow both ways, and hostile
bytes.
"""

import json
import math
import random

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tensorwire as tw
from support.example_files import entry, example, ints
from support.example_protos import Messages
from support.protos import block, field
from tensorwire.codecs.example import Example
from tensorwire.testing import check_codec
from tensorwire.testing import strategies as tws
from tensorwire.wire.example import key_order

PLAIN = {
    "a": np.float32([1.5, -0.0, np.nan]),
    "b": np.array([-(1 << 63), -1, 0, 300, (1 << 63) - 1]),
    "c": tw.Strings.of([b"", b"\xff", b"x" * 300]),
    "none": np.zeros(0, np.float32),
    "é": np.zeros(0, np.int64),
}
OTHER = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3),
    "double": np.array([0.1, 2.0]),
    "scalar": np.array(7),
    "half": np.ones(3, ml_dtypes.bfloat16),
    "words": tw.Strings.of(["é", ""]),
    "grid": tw.Strings.of([b"a", b"b"], (2, 1)),
    "ids": np.array([1, 2]),
}


def dumps(value):
    return tw.dumps(value, "example")


def loads(data, **options):
    return tw.loads(data, "example", **options)


def test_it_holds_everything():
    assert set(check_codec("example").values()) == {"exact"}


@given(tws.values())
def test_any_value(value):
    blob = dumps(value)
    for copy in (None, True):
        assert tw.equal(loads(blob, copy=copy), value)


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
        st.sampled_from(list(PLAIN.values())),
    )
)
def test_plain_dicts_need_no_words_of_ours(value):
    blob = dumps(value)
    assert b"tensorwire" not in blob and tw.equal(loads(blob), value)


def test_it_is_never_guessed():
    for value in (PLAIN, OTHER):
        with pytest.raises(tw.TensorwireError):
            tw.loads(dumps(value))


class Known(Messages):
    """Without unknown fields: protobuf for Python drops a map's entry that has one, and protobuf
    for C++ keeps it, as we do.
    """

    def noise(self, known):
        return b""


@pytest.mark.tensorflow
class TestAgainstTensorFlow:
    def theirs(self, tf, value):
        def feature(part):
            if isinstance(part, tw.Strings):
                return tf.train.Feature(bytes_list=tf.train.BytesList(value=part.tolist()))
            if part.dtype == np.int64:
                return tf.train.Feature(int64_list=tf.train.Int64List(value=part))
            return tf.train.Feature(float_list=tf.train.FloatList(value=part))

        return tf.train.Example(
            features=tf.train.Features(
                feature={name: feature(part) for name, part in value.items()}
            )
        )

    def test_plain_dicts_are_their_bytes(self, tf):
        """Deterministic writers sort the names; a dict in that order is the same bytes, in any
        order the same message.
        """
        message = self.theirs(tf, PLAIN)
        ordered = {
            name.decode(): PLAIN[name.decode()]
            for name in key_order(name.encode() for name in PLAIN)
        }
        assert dumps(ordered) == message.SerializeToString(deterministic=True)
        for names in (PLAIN, reversed(PLAIN)):
            value = {name: PLAIN[name] for name in names}
            assert tf.train.Example.FromString(dumps(value)).SerializeToString(
                deterministic=True
            ) == dumps(ordered)
        long = {"x": np.arange(100_000, dtype=np.float32)}  # written by another way
        assert dumps(long) == self.theirs(tf, long).SerializeToString(deterministic=True)
        assert dumps({}) == tf.train.Example(features={}).SerializeToString()

    def test_we_read_theirs(self, tf):
        found = loads(self.theirs(tf, PLAIN).SerializeToString())
        assert found.keys() == PLAIN.keys() and all(
            tw.equal(found[name], PLAIN[name]) for name in PLAIN
        )
        assert loads(tf.train.Example().SerializeToString()) == {}

    def test_they_read_lists(self, tf):
        found = tf.io.parse_single_example(
            dumps(PLAIN),
            {
                "a": tf.io.FixedLenFeature([3], tf.float32),
                "b": tf.io.FixedLenFeature([5], tf.int64),
                "c": tf.io.FixedLenFeature([3], tf.string),
                "none": tf.io.VarLenFeature(tf.float32),
            },
        )
        assert all(tw.equal(found[name], PLAIN[name]) for name in "abc") and found[
            "none"
        ].shape == (0,)

    def test_they_read_tensors(self, tf):
        """Every other part is a TensorProto, in a message with our words and all."""
        value = {
            "layers": [
                OTHER,
                {"r": tw.Ragged.of([[1], []]), "s": tw.Sparse([[0, 1]], np.float32([2]), (2, 2))},
            ],
            "n": 3,
        }
        names = {
            "matrix": tf.float32,
            "double": tf.float64,
            "scalar": tf.int64,
            "half": tf.bfloat16,
            "grid": tf.string,
        }
        spec = {f"layers/0/{name}": tf.io.FixedLenFeature([], tf.string) for name in names}
        spec |= {
            "layers/0/words": tf.io.FixedLenFeature([2], tf.string),
            "layers/1/s/indices": tf.io.FixedLenFeature([], tf.string),
        }
        spec |= {
            "layers/1/r/row_splits/0": tf.io.FixedLenFeature([3], tf.int64),
            "tensorwire": tf.io.FixedLenFeature([], tf.string),
        }
        found = tf.io.parse_single_example(dumps(value), spec)
        for name, dtype in names.items():
            stored = found[f"layers/0/{name}"]
            assert (
                stored.numpy() == tf.io.serialize_tensor(tw.to(OTHER[name], "tensorflow")).numpy()
            )
            assert tw.equal(tf.io.parse_tensor(stored, dtype), OTHER[name])
        assert found["layers/0/words"].numpy().tolist() == ["é".encode(), b""]
        assert found["layers/1/r/row_splits/0"].numpy().tolist() == [0, 1, 1]
        assert tw.equal(
            tf.io.parse_tensor(found["layers/1/s/indices"], tf.int64), np.array([[0, 1]])
        )
        assert sorted(json.loads(found["tensorwire"].numpy())) == ["spec", "tensors", "version"]

    def test_any_message_of_anyone(self, tf):
        """Whatever protobuf's rules allow: the same features as its own runtime finds, or both
        refuse.
        """
        kinds = {b"a": 1, b"b": 2, b"aa": 3, "höhe".encode(): 3, b"": 1}
        read = 0
        for seed in range(600):
            data = Known(random.Random(seed), 0.2 if seed % 2 else 0.05).message(kinds, None)
            try:
                theirs = tf.train.Example.FromString(data)
            except Exception as error:
                assert type(error).__name__ == "DecodeError"
                with pytest.raises(tw.DecodeError):
                    loads(data)
                continue
            try:
                found = loads(data)
            except tw.DecodeError as error:
                assert "concatenated" in error.message  # the one thing that we do not let pass
                continue
            lists = {
                name: feature.WhichOneof("kind")
                for name, feature in theirs.features.feature.items()
            }
            assert found.keys() == {name for name, kind in lists.items() if kind}
            for name, kind in lists.items():
                if kind:
                    values = getattr(theirs.features.feature[name], kind).value
                    np.testing.assert_array_equal(
                        np.asarray(found[name]),
                        np.array(values, getattr(found[name], "dtype", object)),
                    )
            read += 1
        assert read > 300

    def test_records_of_them(self, tf, tmp_path):
        """What write_examples writes is read one by one, and the other way round."""
        tw.write_examples(tmp_path / "a", [{"x": np.float32([1, 2]), "label": 7}])
        found = loads(tw.RecordReader(tmp_path / "a")[0])
        assert tw.equal(
            dict(sorted(found.items())), {"label": np.array([7]), "x": np.float32([1, 2])}
        )
        with tw.io.TFRecordWriter(tmp_path / "b") as writer:
            writer.write(dumps(PLAIN))
        batch = next(iter(tw.read_examples(tmp_path / "b")))
        assert tw.equal(batch["b"][0], PLAIN["b"])


GOOD = {
    "nothing": (b"", {}),
    "no features": (example(), {}),
    "no list": (example(entry(b"a", b""), entry(b"b", ints(1))), {"b": np.array([1])}),
    "no feature": (example(entry(b"a")), {}),
    "no key": (example(block(1, block(2, ints(1)))), {"": np.array([1])}),
    "an empty list": (example(entry(b"a", block(3, b""))), {"a": np.zeros(0, np.int64)}),
    "a name twice": (
        example(entry(b"a", ints(1)), entry(b"b", ints(2)), entry(b"a", ints(3))),
        {"b": np.array([2]), "a": np.array([3])},
    ),
    "not packed": (
        example(entry(b"a", block(3, field(1, 0, b"\x05") + block(1, b"\x06\x07")))),
        {"a": np.array([5, 6, 7])},
    ),
    "two lists": (
        example(entry(b"a", ints(1) + block(1, block(1, b"x")))),
        {"a": tw.Strings.of([b"x"])},
    ),
    "merged": (example(entry(b"a", ints(1), ints(2))), {"a": np.array([1, 2])}),
    "key behind its value": (
        example(block(1, block(2, ints(4)) + block(1, b"a"))),
        {"a": np.array([4])},
    ),
    "unknown fields": (
        example(entry(b"a", ints(1)), field(9, 0, b"\x01")) + block(3, b"x"),
        {"a": np.array([1])},
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_protobuf_says(name):
    data, expected = GOOD[name]
    assert tw.equal(loads(data), expected)


def said(text):
    return entry(b"tensorwire", block(1, block(1, text)))


def proto(data):
    return block(1, block(1, data))


ONE = tw.dumps(np.int8([1]), "tensorproto")
HOSTILE = {
    "cut": (example(entry(b"a", ints(1)))[:-1], "past the end"),
    "joined": (example(entry(b"a", ints(1))) * 2, "two concatenated messages"),
    "a name that is not UTF-8": (example(entry(b"\xff", ints(1))), "UTF-8"),
    "a sequence": (example() + block(2, b""), "SequenceExample"),
    "floats that are cut": (example(entry(b"a", block(2, block(1, bytes(3))))), "packed run"),
    "a number that is cut": (example(entry(b"a", block(3, block(1, b"\x80")))), "past the end"),
    "ours of ints": (example(entry(b"tensorwire", ints(1))), "bytes list of length 1"),
    "ours twice": (example(entry(b"tensorwire", block(1, block(1, b"{}") * 2))), "bytes list of length 1"),
    "ours, no JSON": (example(said(b"{nope}")), "not JSON"),
    "ours, no object": (example(said(b"[]")), "spec version"),
    "ours, another version": (example(said(b'{"version":2,"spec":{}}')), "spec version"),
    "ours, more": (example(said(b'{"version":1,"spec":{},"x":1}')), "expected the keys"),
    "ours, no spec": (example(said(b'{"version":1}')), "expected the keys"),
    "tensors no list": (example(said(b'{"version":1,"spec":3,"tensors":3}')), "list of names"),
    "tensors of nothing": (example(said(b'{"version":1,"spec":3,"tensors":["x"]}')), "do not match"),
    "spec for other names": (example(said(b'{"version":1,"spec":{"dict":{"b":{}}}}'), entry(b"a", ints(1))), "do not match"),
    "spec for more": (example(said(b'{"version":1,"spec":{"list":9}}'), entry(b"0", ints(1))), "more than the 1 stored parts"),
    "spec for less": (example(said(b'{"version":1,"spec":3}'), entry(b"0", ints(1))), "do not match"),
    "spec of text, and numbers": (example(said(b'{"version":1,"spec":{"text":true}}'), entry(b"tensor", ints(1))), "text"),
    "tensor of ints": (example(said(b'{"version":1,"spec":{},"tensors":["tensor"]}'), entry(b"tensor", ints(1))), "bytes list of length 1"),
    "no TensorProto": (example(said(b'{"version":1,"spec":{},"tensors":["tensor"]}'), entry(b"tensor", proto(b"x"))), "unknown field"),
    "joined TensorProtos": (
        example(said(b'{"version":1,"spec":{},"tensors":["tensor"]}'), entry(b"tensor", proto(ONE + ONE))), "two concatenated messages",
    ),
    "a variant": (
        example(
            said(b'{"version":1,"spec":{},"tensors":["tensor"]}'),
            entry(b"tensor", proto(tw.dumps(tw.Ragged.of([[1]]), "tensorproto", variant=True))),
        ),
        "variant",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_messages(name):
    data, why = HOSTILE[name]
    with pytest.raises(tw.DecodeError, match=why) as caught:
        loads(data)
    assert caught.value.format == "example" and 0 <= caught.value.offset <= len(data)


def test_the_name_of_ours_is_taken():
    with pytest.raises(tw.EncodeError, match="reserved"):
        dumps({"tensorwire": np.zeros(1, np.float32)})


class TestLimits:
    def test_names(self):
        blob = dumps({str(i): np.array([i]) for i in range(20)})
        assert len(loads(blob, limits=tw.Limits(names=20))) == 20
        with pytest.raises(tw.LimitError, match="names"):
            loads(blob, limits=tw.Limits(names=10))

    def test_values(self):
        blob = dumps({"a": np.zeros(1000, np.int64)})
        with pytest.raises(tw.LimitError, match="tensor"):
            loads(blob, limits=tw.Limits(tensor=5000))

    def test_many_features_cost_what_they_hold(self):
        """No buffer is larger than what a feature has in it, however many features there are."""
        value = {
            f"{i:05}": np.arange(100) if i % 2 else tw.Strings.of([b"x" * 100] * 2)
            for i in range(5000)
        }
        assert tw.equal(loads(dumps(value)), value)

    def test_past_two_gigabytes(self):
        huge = np.zeros(1 << 29, np.float32)  # the pages are never touched
        for value in ({"x": huge}, huge.reshape(2, -1), [huge[: 1 << 28], huge[: 1 << 28]]):
            with pytest.raises(tw.EncodeError, match="safetensors"):
                Example().encode(value)


def test_memory():
    value = {"floats": np.zeros(1 << 16, np.float32), "matrix": np.zeros((1 << 8, 1 << 8))}
    parts = tw.buffers(value, "example")
    for array in value.values():
        assert any(np.shares_memory(np.frombuffer(part, np.uint8), array) for part in parts)
    with pytest.raises(tw.DecodeError, match="copy=False"):
        loads(dumps(value), copy=False)
    one = dumps({"m": np.zeros((3, 3), np.int8)})
    assert not loads(one, copy=False)["m"].flags.writeable
    with tw.open(dumps({"layers": [np.zeros((2, 2))]}), "example") as file:
        assert file["layers/0"].shape == (2, 2)


def assert_ours(data):
    try:
        loads(data)
    except tw.DecodeError as error:
        assert error.format == "example" and 0 <= error.offset <= len(data)


@pytest.mark.parametrize(
    "value",
    [PLAIN, OTHER, tw.Bundle({"x": np.zeros((1, 2))}, {"m": "1"}), [1, math.nan]],
    ids=["plain", "other", "bundle", "list"],
)
def test_every_flip_and_every_cut(value):
    blob = dumps(value)
    for at in range(1, len(blob)):
        with pytest.raises(tw.DecodeError):
            loads(blob[:at])
        for bit in range(8):
            assert_ours(blob[:at] + bytes([blob[at] ^ 1 << bit]) + blob[at + 1 :])


@given(tws.values(), st.data())
def test_damage_gives_a_value_or_our_error(value, data):
    blob = dumps(value)
    at = data.draw(st.integers(0, len(blob) - 1))
    flipped = bytearray(blob)
    flipped[at] ^= 1 << data.draw(st.integers(0, 7))
    for damaged in (blob[:at], bytes(flipped), blob + blob[:at]):
        assert_ours(damaged)


@given(st.binary(max_size=100))
def test_garbage(data):
    for damaged in (data, example(data), example(entry(b"a", data)), example(said(data))):
        assert_ours(damaged)
