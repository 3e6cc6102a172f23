"""Readers of Examples drop nothing in silence: rare features, feature lists, other messages."""

import struct

import numpy as np
import pytest

import tensorwire as tw

FILES = 300
"""A sample looks into 256 files."""
UNSEEN = 6
"""... and not into this one."""


def example(**features):
    return tw.dumps({name: np.asarray(value) for name, value in features.items()}, "example")


def records(path, *messages, **options):
    with tw.RecordWriter(path, **options) as writer:
        for message in messages:
            writer.write(message)
    return str(path)


def block(number, data):
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


def event(summary=True):
    """TensorBoard's: wall_time, and a file_version or a step and a summary."""
    time = b"\x09" + struct.pack("<d", 1.7e9)
    if not summary:
        return time + block(3, b"brain.Event:2")
    return time + b"\x10\x05" + block(5, block(1, block(1, b"loss")))


LISTS = block(2, block(1, block(1, b"l") + block(2, block(1, block(3, block(1, b"\x01\x02"))))))
"""feature_lists {"l": [[1, 2]]}"""
NO_VALUES = block(1, block(1, block(1, b"z") + block(2, b"")))
"""features {"z": Feature()}"""
SCHEMA = {"x": tw.Feature("int64", ())}


def unseen(folder, record, **options):
    """Files of which the sample does not see one that has this record."""
    for number in range(FILES):
        extra = [record] if number == UNSEEN else []
        records(
            folder / f"{number:03d}.tfrecord",
            example(x=[1]),
            example(x=[2]),
            *extra,
            example(x=[3]),
            **options,
        )
    return str(folder / "*.tfrecord"), str(folder / f"{UNSEEN:03d}.tfrecord")


class TestFeatures:
    @pytest.mark.parametrize("workers", [0, 2])
    def test_a_feature_that_the_sample_did_not_have(self, tmp_path, workers):
        where, path = unseen(tmp_path, example(x=[7], rare=[0.5]))
        with pytest.raises(tw.SchemaError) as caught:
            list(tw.read_examples(where, workers=workers, batch_size=5))
        assert (caught.value.tensor, caught.value.path, caught.value.record) == ("rare", path, 2)
        assert sum(batch.size for batch in tw.read_examples(where, columns=["x"])) == 3 * FILES + 1
        assert sum(batch.size for batch in tw.read_examples(where, SCHEMA)) == 3 * FILES + 1
        full = tw.infer_schema(where, full=True)
        assert sum(int(batch.present["rare"].sum()) for batch in tw.read_examples(where, full)) == 1
        assert "rare" in tw.read_examples(where).schema  # from the indexes now

    @pytest.mark.parametrize(
        "options",
        [
            {"shuffle": 1},
            {"shard": (0, 1)},
            {"on_corrupt": "skip"},
            {"reuse": True},
            {"mmap": True},
        ],
    )
    def test_other_ways_to_read(self, tmp_path, options):
        where, path = unseen(tmp_path, example(x=[7], rare=[0.5]))
        with pytest.raises(tw.SchemaError) as caught:
            list(tw.read_examples(where, **options))
        assert (caught.value.tensor, caught.value.path, caught.value.record) == ("rare", path, 2)

    def test_compressed(self, tmp_path):
        where, path = unseen(tmp_path, example(x=[7], rare=[0.5]), compression="gzip")
        with pytest.raises(tw.SchemaError) as caught:
            list(tw.read_examples(where))
        assert (caught.value.tensor, caught.value.path) == ("rare", path)

    def test_what_has_no_values_is_not_missed(self, tmp_path):
        where, _ = unseen(tmp_path, example(x=[7]) + NO_VALUES)
        assert sum(batch["x"].sum() for batch in tw.read_examples(where)) == 6 * FILES + 7

    def test_a_field_that_an_example_may_have_one_day(self, tmp_path):
        path = records(tmp_path / "a", example(x=[7]) + block(9, b"new"), example(x=[8]))
        assert next(iter(tw.read_examples(path)))["x"].tolist() == [7, 8]

    @pytest.mark.torch
    def test_torch(self, tmp_path):
        from tensorwire.torch import ExampleDataset, ExampleMapDataset

        where, path = unseen(tmp_path, example(x=[7], rare=[0.5]))
        with pytest.raises(tw.SchemaError) as caught:
            list(ExampleDataset(where, batch_size=4))
        assert (caught.value.tensor, caught.value.path) == ("rare", path)
        mapped = ExampleMapDataset(where)
        assert mapped[0]["x"] == 1
        with pytest.raises(tw.SchemaError) as caught:
            mapped[3 * UNSEEN + 2]
        assert (caught.value.tensor, caught.value.record) == ("rare", 3 * UNSEEN + 2)
        assert len(list(ExampleDataset(where, batch_size=None, columns=["x"]))) == 3 * FILES + 1

    @pytest.mark.arrow
    def test_arrow(self, tmp_path):
        where, path = unseen(tmp_path, example(x=[7], rare=[0.5]))
        with pytest.raises(tw.SchemaError) as caught:
            tw.read_examples(where).arrow().read_all()
        assert (caught.value.tensor, caught.value.path) == ("rare", path)


class TestFeatureLists:
    def write(self, path):
        rows = [({"id": 7}, {"token": [b"a", b"b"]}), ({"id": 8}, {"token": []})]
        tw.write_sequence_examples(path, rows)
        return str(path)

    @pytest.mark.parametrize("sidecar", [True, False])
    def test_read_examples(self, tmp_path, sidecar):
        path = self.write(tmp_path / "a.tfrecord")
        if not sidecar:
            (tmp_path / "a.tfrecord.schema.json").unlink()
        with pytest.raises(tw.SchemaError, match="read_sequence_examples") as caught:
            tw.read_examples(path)
        assert (caught.value.tensor, caught.value.path) == ("token", path)
        for columns in (["token"], ["id", "token"]):
            with pytest.raises(tw.SchemaError, match="read_sequence_examples"):
                tw.read_examples(path, columns=columns)
        with pytest.raises(tw.SchemaError, match="read_sequence_examples"):
            tw.read_examples(path, tw.infer_schema(path))
        # Left out on purpose.
        assert next(iter(tw.read_examples(path, columns=["id"])))["id"].tolist() == [7, 8]
        schema = {"id": tw.Feature("int64", ())}
        assert next(iter(tw.read_examples(path, schema)))["id"].tolist() == [7, 8]
        assert next(iter(tw.read_sequence_examples(path))).sequences["token"].tolist() == [
            [b"a", b"b"],
            [],
        ]

    @pytest.mark.torch
    def test_torch(self, tmp_path):
        from tensorwire.torch import ExampleDataset, ExampleMapDataset

        path = self.write(tmp_path / "a.tfrecord")
        for dataset in (ExampleDataset, ExampleMapDataset):
            with pytest.raises(tw.SchemaError) as caught:
                dataset(path)
            assert caught.value.tensor == "token"

    def test_a_list_that_the_sample_did_not_have(self, tmp_path):
        where, path = unseen(tmp_path, example(x=[7]) + LISTS)
        for read in (tw.read_examples, tw.read_sequence_examples):
            with pytest.raises(tw.SchemaError) as caught:
                list(read(where))
            assert (caught.value.tensor, caught.value.path, caught.value.record) == ("l", path, 2)


class TestOtherMessages:
    @pytest.mark.parametrize("compression", [None, "gzip"])
    def test_tensorboard(self, tmp_path, compression):
        events = [event(False), event()]
        path = records(tmp_path / "events.out.tfevents.1", *events, compression=compression)
        for read in (tw.read_examples, tw.read_sequence_examples, tw.infer_schema):
            with pytest.raises(tw.SchemaError, match="TensorBoard") as caught:
                read(path)
            assert (caught.value.path, caught.value.record) == (path, 0)
        assert tw.inspect(path).records == 2 and tw.inspect(path).schema is None
        with pytest.raises(tw.SchemaError):
            tw.convert(path, tmp_path / "o.jsonl")

    @pytest.mark.tensorflow
    def test_tensorboard_of_tensorflow(self, tf, tmp_path):
        value = tf.compat.v1.Summary.Value(tag="loss", simple_value=0.5)
        summary = tf.compat.v1.Summary(value=[value])
        events = [
            tf.compat.v1.Event(wall_time=1.7e9, file_version="brain.Event:2"),
            tf.compat.v1.Event(wall_time=1.7e9, step=1, summary=summary),
        ]
        path = records(tmp_path / "a", *(message.SerializeToString() for message in events))
        with pytest.raises(tw.SchemaError, match="TensorBoard"):
            tw.read_examples(path)

    @pytest.mark.parametrize(
        "message",
        [
            block(3, b"name"),
            b"\x10\x05",
            b"\x25abcd",
            block(1, b"\x10\x05"),
            block(1, block(3, b"x")),
        ],
    )
    def test_others(self, tmp_path, message):
        path = records(tmp_path / "a.tfrecord", message, message)
        with pytest.raises(tw.SchemaError) as caught:
            tw.read_examples(path)
        assert (caught.value.path, caught.value.record) == (path, 0)

    def test_one_among_examples(self, tmp_path):
        path = records(tmp_path / "a.tfrecord", example(x=[1]), event(), example(x=[2]))
        with pytest.raises(tw.SchemaError) as caught:
            tw.read_examples(path)
        assert (caught.value.path, caught.value.record) == (path, 1)

    def test_one_that_the_sample_did_not_have(self, tmp_path):
        where, path = unseen(tmp_path, event())
        with pytest.raises(tw.SchemaError, match="TensorBoard") as caught:
            list(tw.read_examples(where))
        assert (caught.value.path, caught.value.record) == (path, 2)

    def test_riegeli(self, tmp_path):
        path = tmp_path / "a.tfrecord"
        path.write_bytes(
            bytes.fromhex(
                "83af70d10d884a3f 0000000000000000 4000000000000000 91bac23c9287e1a9"
                "0000000000000000 e19f13c0e9b1c372 7300000000000000 0000000000000000"
            )
        )
        with pytest.raises(tw.DecodeError, match="Riegeli") as caught:
            tw.read_examples(path)
        assert caught.value.path == str(path)
        with pytest.raises(tw.DecodeError, match="Riegeli"):
            list(tw.RecordReader(path))

    @pytest.mark.parametrize("messages", [[b"", b""], [NO_VALUES], [block(1, b"")], []])
    def test_examples_without_features(self, tmp_path, messages):
        path = records(tmp_path / "a.tfrecord", *messages)
        assert sum(batch.size for batch in tw.read_examples(path)) == len(messages)
