"""Models for tests of serving: a recommendation model with two sparse, one ragged, one string and
one dense input, and its inputs.

All numbers are small multiples of 1/4, so that sums are exact in any order, and answers can be
compared bit by bit.
"""

import numpy as np

import tensorwire as tw

ITEMS, TAGS, WORDS, WIDTH = 1000, 50, 200, 3
SIGNATURE = {
    "clicks": ("sparse", "float32", [None, ITEMS]),
    "tags": ("sparse", "int64", [None, TAGS]),
    "words": ("ragged", "int64", [None, None]),
    "country": ("string", [None]),
    "profile": ("float32", [None, WIDTH]),
}
COUNTRIES = ["de", "fr", "it"]


def quarters(rng, shape):
    return (rng.integers(-16, 17, shape) / 4).astype(np.float32)


def recommender(tf, seed=7):
    """A tf.Module: scores [batch] and the best three items of each row."""
    rng = np.random.default_rng(seed)

    def weights(*shape):
        return tf.Variable(quarters(rng, shape))

    class Recommender(tf.Module):
        def __init__(self):
            super().__init__()
            self.items, self.tags, self.words = (
                weights(ITEMS, 4),
                weights(TAGS, 4),
                weights(WORDS, 4),
            )
            self.profile, self.places = weights(WIDTH, 4), weights(len(COUNTRIES) + 1, 4)
            keys = tf.lookup.KeyValueTensorInitializer(
                COUNTRIES, tf.range(len(COUNTRIES), dtype=tf.int64)
            )
            self.countries = tf.lookup.StaticVocabularyTable(keys, 1)

        def __call__(self, clicks, tags, words, country, profile):
            hidden = tf.sparse.sparse_dense_matmul(clicks, self.items)
            hidden += tf.sparse.sparse_dense_matmul(tf.cast(tags, tf.float32), self.tags)
            hidden += tf.reduce_sum(tf.gather(self.words, words), 1)
            hidden += (
                tf.gather(self.places, self.countries.lookup(country)) + profile @ self.profile
            )
            best = tf.math.top_k(hidden @ tf.transpose(self.items), 3)
            return {
                "score": tf.reduce_sum(hidden, 1),
                "items": best.indices,
                "weights": best.values,
            }

    return Recommender()


def inputs(rows=4, seed=1):
    """Tensors of ours for the model: empty rows, unknown countries and all."""
    rng = np.random.default_rng(seed)

    def sparse(width, values):
        taken = np.sort(rng.choice(rows * width, rows * 3, replace=False))
        return tw.Sparse(
            np.stack([taken // width, taken % width], 1), values(len(taken)), (rows, width)
        )

    lengths = rng.integers(0, 5, rows)
    lengths[-1] = 0
    return {
        "clicks": sparse(ITEMS, lambda n: quarters(rng, n)),
        "tags": sparse(TAGS, lambda n: rng.integers(1, 5, n)),
        "words": tw.Ragged(
            rng.integers(0, WORDS, lengths.sum()), np.concatenate([[0], np.cumsum(lengths)])
        ),
        "country": tw.Strings.of([["de", "xx", "it", "fr"][row % 4] for row in range(rows)]),
        "profile": quarters(rng, (rows, WIDTH)),
    }


def parts(tensors):
    """By hand: the columns of the form "parts"."""
    found = {}
    for name, tensor in tensors.items():
        if isinstance(tensor, tw.Sparse):
            found |= {
                f"{name}_indices": tensor.indices,
                f"{name}_values": tensor.values,
                f"{name}_dense_shape": tensor.dense_shape,
            }
        elif isinstance(tensor, tw.Ragged):
            found[f"{name}_values"] = tensor.values
            found |= {
                f"{name}_row_splits_{level}": splits
                for level, splits in enumerate(tensor.row_splits)
            }
        else:
            found[name] = tensor
    return found


def serialized(tf, tensors):
    """By hand, with TensorFlow: the inputs of the form "serialized"."""
    found = {}
    for name, tensor in tensors.items():
        theirs = tw.to(tensor, "tensorflow")
        if isinstance(tensor, tw.Sparse):
            found[name] = tf.io.serialize_many_sparse(theirs)
        elif isinstance(tensor, tw.Ragged):
            found[name] = tf.stack([_ragged_row(tf, row) for row in theirs])
        else:
            found[name] = theirs
    return found


def _ragged_row(tf, row):
    if not isinstance(row, tf.RaggedTensor):
        return tf.io.serialize_tensor(row)
    return tf.stack(
        [tf.io.serialize_tensor(part) for part in (row.flat_values, *row.nested_row_splits)]
    )


def examples(tf, tensors):
    """By hand, with TensorFlow: the input of the form "example"."""
    rows = [{} for _ in range(next(iter(tensors.values())).shape[0])]
    for name, tensor in tensors.items():
        for number, row in enumerate(rows):
            if isinstance(tensor, tw.Sparse):
                mine = tensor.indices[:, 0] == number
                places = tensor.indices[mine, 1:]
                keys = (
                    [f"{name}_indices"]
                    if places.shape[1] == 1
                    else [f"{name}_indices_{i}" for i in range(places.shape[1])]
                )
                row |= {key: places[:, i] for i, key in enumerate(keys)}
                row[f"{name}_values"] = np.asarray(tensor.values)[mine]
                row[f"{name}_dense_shape"] = tensor.dense_shape[1:]
            elif isinstance(tensor, tw.Ragged):
                one = tw.to(tensor, "tensorflow")[number]
                row[name] = np.ravel(one.flat_values if hasattr(one, "flat_values") else one)
                splits = (
                    [np.asarray(each) for each in one.nested_row_splits]
                    if hasattr(one, "flat_values")
                    else []
                )
                if splits:  # in a list vectors lie flat, so the last splits count values
                    splits[-1] = splits[-1] * np.prod(tensor.values.shape[1:], dtype=np.int64)
                row |= {f"{name}_row_splits_{level}": each for level, each in enumerate(splits, 1)}
            else:
                row[name] = np.ravel(tensor[number])
    return {"examples": tf.constant([_example(tf, row) for row in rows])}


def _example(tf, row):
    features = {}
    for key, values in row.items():
        if values.dtype.kind in "OSU":
            texts = [
                value.encode() if isinstance(value, str) else bytes(value)
                for value in values.tolist()
            ]
            features[key] = tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))
        elif values.dtype.kind in "iub":
            features[key] = tf.train.Feature(int64_list=tf.train.Int64List(value=values.tolist()))
        else:
            features[key] = tf.train.Feature(
                float_list=tf.train.FloatList(value=values.astype(np.float32).tolist())
            )
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
