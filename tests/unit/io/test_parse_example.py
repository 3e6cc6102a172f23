"""parse_example and its relatives: by themselves, and beside the real TensorFlow on random specs
and messages.
"""

import contextlib
import inspect
import itertools
import os
import pickle
import time

import numpy as np
import pytest

import tensorwire as tw
from support.example_specs import PARTITIONS, Spec, damaged, generator, message
from support.protos import block, field, varint
from support.tiers import PURE, TORTURE
from tensorwire import io

CASES = int(os.environ.get("TENSORWIRE_CASES", 10_000 if TORTURE else 150))


def ints(*items):
    return block(3, block(1, b"".join(varint(item & (1 << 64) - 1) for item in items)))


def floats(*items):
    return block(2, block(1, np.array(items, "<f4").tobytes()))


def strings(*items):
    return block(1, b"".join(block(1, item) for item in items))


def example(**features):
    return block(
        1,
        b"".join(
            block(1, block(1, key.encode()) + block(2, value)) for key, value in features.items()
        ),
    )


def sequence(context=(), **lists):
    inner = {key: b"".join(block(1, step) for step in steps) for key, steps in lists.items()}
    return example(**dict(context)) + block(
        2, example(**inner)[1 + len(varint(len(example(**inner)) - 2)) :]
    )


class TestExample:
    RECORDS = [
        example(a=ints(1, 2), s=strings(b"x"), f=floats(0.5)),
        example(f=floats(1, 2), s=strings(b"yz")),
    ]

    def test_dense(self):
        found = io.parse_example(
            self.RECORDS,
            {
                "a": io.FixedLenFeature([1, 2], "int64", default_value=[[7, 8]]),
                "s": io.FixedLenFeature([], "string"),
            },
        )
        assert found["a"].tolist() == [[[1, 2]], [[7, 8]]] and found["a"].dtype == np.int64
        assert found["s"].tolist() == [b"x", b"yz"] and found["s"].dtype == object

    def test_one(self):
        features = {
            "a": io.FixedLenFeature([2], np.int64),
            "s": io.FixedLenFeature([], str),
            "f": io.FixedLenFeature((), np.float32),
        }
        found = io.parse_single_example(self.RECORDS[0], features)
        assert (
            found["a"].tolist() == [1, 2]
            and found["s"] == b"x"
            and found["f"].shape == ()
            and found["f"] == np.float32(0.5)
        )
        words = io.parse_example(self.RECORDS[0], {"r": io.RaggedFeature("string", value_key="s")})[
            "r"
        ]
        assert words.dtype == object and words.tolist() == [b"x"]

    def test_sparse(self):
        found = io.parse_example(
            self.RECORDS,
            {
                "f": io.VarLenFeature("float32"),
                "s": io.VarLenFeature("string"),
                "n": io.VarLenFeature("int64"),
            },
        )
        assert tw.equal(
            found["f"], tw.Sparse([[0, 0], [1, 0], [1, 1]], np.float32([0.5, 1, 2]), (2, 2))
        )
        assert (
            found["s"].values.tolist() == [b"x", b"yz"]
            and found["n"].shape == (2, 0)
            and found["n"].nnz == 0
        )

    def test_blocks(self):
        found = io.parse_example(
            self.RECORDS,
            {
                "f": io.FixedLenSequenceFeature([], "float32", True, -1),
                "s": io.FixedLenSequenceFeature([1], "string", True),
            },
        )
        assert found["f"].tolist() == [[0.5, -1], [1, 2]] and found["s"].tolist() == [
            [[b"x"]],
            [[b"yz"]],
        ]
        with pytest.raises(tw.SchemaError, match="not a multiple of the shape") as caught:
            io.parse_example(self.RECORDS, {"f": io.FixedLenSequenceFeature([2], "float32", True)})
        assert caught.value.record == 0 and caught.value.tensor == "f"

    def test_sparse_feature(self):
        records = [
            example(i=ints(3, 1), v=floats(30, 10)),
            example(),
            example(i=ints(0), v=floats(5)),
        ]
        found = io.parse_example(records, {"x": io.SparseFeature("i", "v", "float32", 4)})["x"]
        assert tw.equal(found, tw.Sparse([[0, 1], [0, 3], [2, 0]], np.float32([10, 30, 5]), (3, 4)))
        kept = io.parse_example(
            records, {"x": io.SparseFeature("i", "v", "float32", 4, already_sorted=True)}
        )["x"]
        assert kept.values.tolist() == [30, 10, 5]
        with pytest.raises(tw.SchemaError, match="outside"):
            io.parse_example(records, {"x": io.SparseFeature("i", "v", "float32", 3)})
        crooked = [example(i=ints(3, 1), v=floats(30)), example(i=ints(2), v=floats(1, 2))]
        with pytest.raises(tw.SchemaError, match="different numbers"):
            io.parse_example(crooked, {"x": io.SparseFeature("i", "v", "float32", 4)})
        assert (
            io.parse_example(
                crooked, {"x": io.SparseFeature("i", "v", "float32", 4)}, tf_compat=True
            )["x"].nnz
            == 3
        )

    def test_ragged(self):
        records = [
            example(v=ints(1, 2, 3), p=ints(2, 1)),
            example(),
            example(v=ints(4), p=ints(0, 1)),
        ]
        found = io.parse_example(
            records, {"x": io.RaggedFeature("int64", "v", [io.RaggedFeature.RowLengths("p")])}
        )["x"]
        assert (
            found.tolist() == [[[1, 2], [3]], [], [[], [4]]]
            and found.row_splits[0].dtype == np.int32
        )
        crooked = [example(v=ints(1, 2, 3), p=ints(2)), example(v=ints(4), p=ints(1, 1))]
        with pytest.raises(tw.SchemaError, match="cover"):
            io.parse_example(
                crooked, {"x": io.RaggedFeature("int64", "v", [io.RaggedFeature.RowLengths("p")])}
            )
        with pytest.raises(tw.LimitError):
            huge = {
                "x": io.RaggedFeature("int64", "v", [io.RaggedFeature.ValueRowIds("p")], "int64")
            }
            io.parse_single_example(example(v=ints(1), p=ints(1 << 60)), huge)

    def test_errors_say_where(self):
        wrong = example(a=floats(1))
        with pytest.raises(tw.SchemaError, match="float list, expected int64") as caught:
            io.parse_example([self.RECORDS[0], wrong], {"a": io.VarLenFeature("int64")})
        assert (caught.value.record, caught.value.tensor, caught.value.offset) == (1, "a", 9)
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
        with pytest.raises(tw.SchemaError, match="2 values, expected 3"):
            io.parse_example(self.RECORDS, {"a": io.FixedLenFeature([3], "int64")})
        with pytest.raises(tw.SchemaError, match="missing") as caught:
            io.parse_example(self.RECORDS, {"a": io.FixedLenFeature([2], "int64")})
        assert caught.value.record == 1
        with pytest.raises(tw.TruncatedError) as caught:
            io.parse_example([b"", self.RECORDS[0][:-1]], {"a": io.VarLenFeature("int64")})
        assert (caught.value.record, caught.value.format, caught.value.offset) == (1, "example", 1)

    @pytest.mark.parametrize(
        "features",
        [
            None, {}, {"a": 3}, {"a": "int64"}, [("a", io.VarLenFeature("int64"))],
            {"a": io.VarLenFeature(None)}, {"a": io.VarLenFeature("int32")},
            {"a": io.FixedLenFeature(None, "int64")}, {"a": io.FixedLenFeature([None], "int64")}, {"a": io.FixedLenFeature([-1], "int64")},
            {"a": io.FixedLenFeature([2], "int64", 1)}, {"a": io.FixedLenFeature([], "int64", 1.5)},
            {"a": io.FixedLenFeature([], "int64", "x")},
            {"a": io.FixedLenFeature([], "string", 1)}, {"a": io.FixedLenFeature([1], "float32", [])},
            {"a": io.FixedLenFeature([], "int64", np.uint64(1 << 63))}, {"a": io.FixedLenSequenceFeature([], "int64")},
            {"a": io.FixedLenSequenceFeature([], "int64", True, [1, 2])}, {"a": io.FixedLenSequenceFeature([None], "int64", True)},
            {"a": io.FixedLenSequenceFeature([0], "int64", True)}, {"a": io.SparseFeature("i", "v", "int64", [4])},
            {"a": io.SparseFeature(["i"], "v", "int64", 4)}, {"a": io.SparseFeature([], "v", "int64", [])},
            {"a": io.VarLenFeature("int64"), "b": io.RaggedFeature("int64", "a")},
            {"a": io.VarLenFeature("int64"), "b": io.SparseFeature("i", "a", "float32", 3)},
            {"a": io.RaggedFeature("int64", "b"), "b": io.RaggedFeature("int64", row_splits_dtype="int64")},
            {"a": io.RaggedFeature("int64", partitions=[io.RaggedFeature.UniformRowLength(0)])},
        ],
    )  # fmt: skip
    def test_what_is_refused(self, features):
        for records in ([example(a=ints(1))], []):
            with pytest.raises(tw.SchemaError):
                io.parse_example(records, features)
                assert not records  # what only data can show needs data
                raise tw.SchemaError("")

    def test_what_features_refuse(self):
        for wrong in (
            {"dtype": "int32"},
            {"value_key": ""},
            {"value_key": 3},
            {"row_splits_dtype": "int16"},
        ):
            with pytest.raises(tw.SchemaError):
                io.RaggedFeature(**{"dtype": "int64", **wrong})
        for wrong in ({"partitions": "ab"}, {"partitions": [3]}, {"validate": 1}):
            with pytest.raises(TypeError):
                io.RaggedFeature("int64", **wrong)

    def test_what_is_taken_as_serialized(self):
        features = {"s": io.FixedLenFeature([], "string")}
        for batch in (
            self.RECORDS,
            tuple(self.RECORDS),
            np.array(self.RECORDS, object),
            tw.Strings.of(self.RECORDS),
        ):
            assert io.parse_example(batch, features)["s"].tolist() == [b"x", b"yz"]
        for one in (
            self.RECORDS[0],
            bytearray(self.RECORDS[0]),
            memoryview(self.RECORDS[0]),
            np.array(self.RECORDS[0], object),
        ):
            assert (
                io.parse_example(one, features)["s"]
                == io.parse_single_example(one, features)["s"]
                == b"x"
            )
        assert io.parse_example([], features)["s"].shape == (0,)
        with pytest.raises(tw.SchemaError, match="vector"):
            io.parse_example([self.RECORDS], features)
        with pytest.raises(tw.SchemaError, match="one serialized"):
            io.parse_single_example(self.RECORDS, features)
        with pytest.raises(tw.SchemaError, match="example_names"):
            io.parse_example(self.RECORDS, features, example_names=["one"])
        with pytest.raises(tw.EncodeError, match="string"):
            io.parse_example([1, 2], features)

    def test_protobufs_rules(self):
        """Merged messages and lists, other encodings, unknown fields."""
        value = block(3, field(1, 0, b"\5") + block(1, b"\6\7") + block(9, b"?")) + block(
            3, block(1, b"\x08")
        )
        data = (
            field(7, 5, bytes(4))
            + example(a=ints(1))
            + block(1, block(1, block(2, value) + block(1, b"a")))
        )
        assert io.parse_single_example(data, {"a": io.RaggedFeature("int64")})["a"].tolist() == [
            5,
            6,
            7,
            8,
        ]
        assert (
            io.parse_single_example(data + example(a=b""), {"a": io.RaggedFeature("int64")})[
                "a"
            ].tolist()
            == []
        )
        assert io.parse_single_example(
            example(a=floats(1) + ints(2)), {"a": io.RaggedFeature("int64")}
        )["a"].tolist() == [2]
        assert io.parse_single_example(
            example(a=ints(2) + ints(3)), {"a": io.RaggedFeature("int64")}, tf_compat=True
        )["a"].tolist() == [2]

    def test_many_values_grow_the_buffers(self):
        rng = np.random.default_rng(0)
        rows = [rng.integers(-5, 1 << 40, rng.integers(0, 400)) for _ in range(20)]
        records = [
            example(a=ints(*row.tolist()), s=strings(*[b"x" * int(n % 50) for n in row]))
            for row in rows
        ]
        found = io.parse_example(
            records, {"a": io.RaggedFeature("int64"), "s": io.RaggedFeature("string")}
        )
        assert found["a"].tolist() == [row.tolist() for row in rows]
        assert found["s"].tolist() == [[b"x" * int(n % 50) for n in row] for row in rows]


class TestSequence:
    RECORDS = [
        sequence({"c": ints(7)}, a=[ints(1, 2), ints(3, 4)], v=[ints(1), b"", ints(2, 3)]),
        sequence(a=[ints(5, 6)]),
    ]

    def test_batch(self):
        context, lists, lengths = io.parse_sequence_example(
            self.RECORDS,
            {"c": io.FixedLenFeature([], "int64", 0)},
            {"a": io.FixedLenSequenceFeature([2], "int64"), "v": io.VarLenFeature("int64")},
        )
        assert (
            context["c"].tolist() == [7, 0]
            and lists["a"].tolist() == [[[1, 2], [3, 4]], [[5, 6], [0, 0]]]
            and lengths["a"].tolist() == [2, 1]
        )
        assert tw.equal(
            lists["v"], tw.Sparse([[0, 0, 0], [0, 2, 0], [0, 2, 1]], np.int64([1, 2, 3]), (2, 3, 2))
        )

    def test_one(self):
        context, lists = io.parse_single_sequence_example(
            self.RECORDS[0],
            {"c": io.VarLenFeature("int64")},
            {"a": io.FixedLenSequenceFeature([2], "int64"), "v": io.RaggedFeature("int64")},
        )
        assert (
            context["c"].values.tolist() == [7]
            and lists["a"].tolist() == [[1, 2], [3, 4]]
            and lists["v"].tolist() == [[1], [], [2, 3]]
        )
        lengths = io.parse_sequence_example(
            self.RECORDS[0], None, {"a": io.FixedLenSequenceFeature([2], "int64")}
        )[2]
        assert lengths["a"].shape == () and lengths["a"] == 2

    def test_what_is_refused(self):
        for lists in (
            {"v": io.FixedLenSequenceFeature([], "int64")},
            {"q": io.FixedLenSequenceFeature([], "int64")},
            {"a": io.FixedLenSequenceFeature([2], "int64", True, 3)},
            {"a": io.FixedLenSequenceFeature([0], "int64", True)},
            {"a": io.FixedLenFeature([2], "int64")},
            {"a": io.VarLenFeature("string")},
            None,
        ):
            with pytest.raises(tw.SchemaError):
                io.parse_sequence_example(self.RECORDS, None, lists)
        with pytest.raises(tw.SchemaError, match="allow_missing"):
            io.parse_sequence_example(
                self.RECORDS, None, {"q": io.FixedLenSequenceFeature([], "int64")}
            )


class TestTime:
    """Whatever is in it, a megabyte takes at most half a second of CPU with tf_compat."""

    SIZE = 20_000 if PURE else 1 << 20
    STRINGS = {"a": io.VarLenFeature("string")}
    INTS = {"a": io.VarLenFeature("int64")}
    FLOATS = {"a": io.VarLenFeature("float32")}

    def cpu(self, call, *args):
        start = time.process_time()
        with contextlib.suppress(tw.DecodeError, tw.SchemaError):
            call(*args, tf_compat=True)
        return time.process_time() - start

    def test_records(self):
        plain = example(a=ints(7, 300), f=floats(*range(8)))
        dense = {"a": io.FixedLenFeature([2], "int64"), "f": io.FixedLenFeature([8], "float32")}
        for record, features in (
            (plain, dense),
            (plain, {"a": io.VarLenFeature("int64"), "f": io.FixedLenFeature([8], "float32")}),
            (b"", self.STRINGS),
            (b"", {"a": io.FixedLenFeature([], "int64", 0)}),
        ):
            records = [record] * (self.SIZE // max(4, len(record)))
            assert self.cpu(io.parse_example, records, features) < 0.5

    def test_one_record(self):
        size = self.SIZE
        many = b"".join(block(1, block(1, b"%x" % i) + block(2, b"")) for i in range(size // 8))
        for record, features in (
            (example(a=strings(*[b"x"] * (size // 3))), self.STRINGS),
            (example(a=strings(*[b""] * (size // 2))), self.STRINGS),
            (example(a=ints(*[1] * size)), self.INTS),
            (example(a=block(3, b"\x08\1" * (size // 2))), self.INTS),
            (example(a=block(2, b"\x0d\0\0\x80\x3f" * (size // 5))), self.FLOATS),
            (example(a=ints(1)) * (size // 14), self.INTS),
            (block(1, example(a=ints(1))[2:] * (size // 12)), self.INTS),
            (block(1, many), self.INTS),
            (b"\x18\1" * (size // 2), self.INTS),
            (b"\x0a\0" * (size // 2), self.INTS),
        ):
            assert self.cpu(io.parse_single_example, record, features) < 0.5

    def test_one_sequence(self):
        size = self.SIZE
        for step in (b"\x0a\0", b"\x0a\2\x1a\0", block(1, ints(5))):
            steps = step * (size // len(step))
            record = block(2, block(1, block(1, b"a") + block(2, steps)))
            assert self.cpu(io.parse_single_sequence_example, record, None, self.INTS) < 0.5
            assert self.cpu(io.parse_sequence_example, [record], None, self.INTS) < 0.5


def as_ours(value):
    """Every tensor in a result as ours; one that is none, as TensorFlow's ragged tensors may be,
    raises EncodeError.
    """
    if isinstance(value, dict):
        return {key: as_ours(item) for key, item in sorted(value.items())}
    return [as_ours(item) for item in value] if isinstance(value, tuple) else tw.tensor(value)


@pytest.mark.tensorflow
class TestBesideTensorFlow:
    """A message that protobuf reads means what TensorFlow makes of it once protobuf has written it
    again; with tf_compat any bytes mean what TensorFlow makes of them."""

    def theirs(self, tf, name, records, specs):
        try:
            return as_ours(getattr(tf.io, name)(records, *specs))
        except (tf.errors.InvalidArgumentError, ValueError, TypeError):
            return None

    def agree(self, tf, name, records, plain, specs, compat):
        """Both refuse, or both give the same. Returns whether both accepted.

        We check more: that sparse indices are inside the shape, that values and partitions have the
        same numbers of steps, and unless `compat` that each record's partitions and indices fit its
        own values. Those who refuse for the last agree if they do without it.
        """
        what = (name, specs, records)
        try:
            ours = as_ours(getattr(io, name)(records, *specs, tf_compat=compat))
        except tw.TensorwireError as error:
            if not compat and any(
                why in str(error) for why in ("do not fit its values", "different numbers", "imply")
            ):
                return self.agree(tf, name, plain, plain, specs, True)
            assert (
                "outside" in str(error)
                or "of steps" in str(error)
                or self.theirs(tf, name, plain, specs) is None
            ), (str(error), what)
            return False
        theirs = self.theirs(tf, name, plain, specs)
        assert theirs is not None and tw.equal(ours, theirs), (ours, theirs, what)
        return True

    def rewritten(self, tf, records, sequence):
        """As protobuf writes them, without unset context features, which TensorFlow takes for empty
        ones; None if it cannot read them.
        """
        from google.protobuf.unknown_fields import UnknownFieldSet

        out = []
        for record in records:
            try:
                found = (tf.train.SequenceExample if sequence else tf.train.Example).FromString(
                    record
                )
            except Exception:
                return None
            maps = [found.context, found.feature_lists] if sequence else [found.features]
            if any(field.field_number == 1 for part in maps for field in UnknownFieldSet(part)):
                # an entry with an unknown field, which protobuf for Python drops, and for C++ keeps
                return None
            for key in (
                [
                    key
                    for key, value in found.context.feature.items()
                    if not value.WhichOneof("kind")
                ]
                if sequence
                else []
            ):
                del found.context.feature[key]
            found.DiscardUnknownFields()
            out.append(found.SerializeToString())
        return out

    def test_defaults(self, tf):
        values = [
            7,
            [7],
            [[7]],
            [7, 8],
            [],
            7.0,
            7.5,
            True,
            [True],
            np.int32(7),
            np.array([7], np.int32),
            np.float16(2),
            "x",
            b"x",
            ["x"],
        ]
        for dtype, shape, value in itertools.product(
            ["int64", "float32", "string"], [[], [1], [2], [1, 1]], values
        ):
            if dtype == "int64" and isinstance(value, np.float16):
                continue  # which TensorFlow cuts to an integer, and we refuse
            for kind in (
                tf.io.FixedLenFeature(shape, dtype, value),
                tf.io.FixedLenSequenceFeature(shape, dtype, True, value),
            ):
                records = [
                    b"",
                    example(
                        a={
                            "int64": ints(1, 2),
                            "float32": floats(1, 2),
                            "string": strings(b"y", b"z"),
                        }[dtype]
                    ),
                ]
                for some in (records[:1], records):
                    self.agree(tf, "parse_example", some, some, ({"a": kind},), False)

    def test_empty_batches(self, tf):
        none = tf.constant([], tf.string)
        for seed in range(60):
            rng = generator(f"empty {seed}")
            self.agree(
                tf,
                "parse_example",
                none,
                none,
                (Spec(rng, tf.io, "example").features,),
                seed % 2 == 0,
            )
            specs = [Spec(rng, tf.io, part).features for part in ("context", "lists")]
            # else we read some that TensorFlow does not
            self.agree(tf, "parse_sequence_example", none, none, specs, True)

    def test_their_features_are_ours(self, tf):
        for name in (
            "FixedLenFeature",
            "VarLenFeature",
            "SparseFeature",
            "RaggedFeature",
            "FixedLenSequenceFeature",
        ):
            ours, theirs = (
                inspect.signature(getattr(module, name)).parameters.values()
                for module in (io, tf.io)
            )
            assert getattr(io, name)._fields == getattr(tf.io, name)._fields
            for mine, other in zip(ours, theirs, strict=True):
                assert mine.name == other.name and (
                    mine.default == other.default or mine.default == other.default.name
                )
        for partition in PARTITIONS:
            assert (
                getattr(io.RaggedFeature, partition)._fields
                == getattr(tf.io.RaggedFeature, partition)._fields
            )
            assert repr(getattr(io.RaggedFeature, partition)(3)) == repr(
                getattr(tf.io.RaggedFeature, partition)(3)
            )
        assert repr(io.FixedLenFeature([1], tf.int64)) == repr(tf.io.FixedLenFeature([1], tf.int64))

    @pytest.mark.torture
    @pytest.mark.parametrize("damage", [False, True])
    @pytest.mark.parametrize("compat", [False, True])
    def test_example(self, tf, compat, damage, record_property):
        accepted = 0
        for seed in range(CASES):
            rng = generator(f"example {compat} {damage} {seed}")
            spec = Spec(rng, tf.io, "example")
            specs, wild = (spec.features,), not compat or rng.random() < 0.7
            records = [
                message(rng, [spec.entries(wild)], wild) for _ in range(rng.choice([1, 1, 2, 3]))
            ]
            if damage:
                records[-1] = damaged(rng, records[-1])
            plain = records if compat else self.rewritten(tf, records, False)
            if plain is None:  # broken, perhaps where we do not look
                with contextlib.suppress(tw.TensorwireError):
                    io.parse_example(records, *specs)
            else:
                accepted += self.agree(tf, "parse_example", records, plain, specs, compat)
                accepted += self.agree(
                    tf, "parse_single_example", records[-1], plain[-1], specs, compat
                )
        record_property("cases", CASES)
        assert accepted > CASES / (9 if damage else 3)

    @pytest.mark.torture
    @pytest.mark.parametrize("damage", [False, True])
    @pytest.mark.parametrize("compat", [False, True])
    def test_sequence(self, tf, compat, damage, record_property):
        accepted = 0
        for seed in range(CASES):
            rng = generator(f"sequence {compat} {damage} {seed}")
            # TensorFlow writes past the end of a sparse tensor when one of its strings is cut off
            parts = [
                Spec(rng, tf.io, part, sparse_strings=not (compat and damage))
                for part in ("context", "lists")
            ]
            specs, wild = [part.features for part in parts], not compat or rng.random() < 0.7
            records = [
                message(rng, [part.entries(wild) for part in parts], wild)
                for _ in range(rng.choice([1, 1, 2, 3]))
            ]
            if damage:
                records[-1] = damaged(rng, records[-1])
            plain = records if compat else self.rewritten(tf, records, True)
            if plain is None:
                with contextlib.suppress(tw.TensorwireError):
                    io.parse_sequence_example(records, *specs)
            else:
                accepted += self.agree(tf, "parse_sequence_example", records, plain, specs, compat)
                accepted += self.agree(
                    tf, "parse_single_sequence_example", records[-1], plain[-1], specs, compat
                )
        record_property("cases", CASES)
        assert accepted > CASES / (9 if damage else 3)
