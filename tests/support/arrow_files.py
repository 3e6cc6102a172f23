"""Arrow files made by pyarrow and by hand."""

import tensorwire as tw
from tensorwire import _native as native
from tensorwire.testing.sampling import DTYPES, numbers

HAS = [row for row in DTYPES if row.arrow]


def ipc(table, stream=False, rows=None, **options):
    """The bytes that pyarrow writes."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)
    ) as writer:
        writer.write_table(table, rows)
    return sink.getvalue().to_pybytes()


def foreign(pa):
    """Columns of every type that is read, of eleven rows."""
    words = [
        "",
        "a",
        "é日本",
        "nul\0",
        "a string that a view does not keep inline",
        "b",
        "c",
        "d",
        "e",
        "f",
        "g",
    ]
    lists = [[1, 2], [], [3], [4, 5, 6], [], [], [7], [8], [9], [10, 11], []]
    found = {}
    for row in HAS:
        found[row.name] = pa.array(numbers(row, (11,)))
        found[f"{row.name} tensor"] = tw.to(numbers(row, (11, 2, 3)), "arrow")
    for kind in ("string", "large_string", "string_view"):
        found[kind] = pa.array(words, getattr(pa, kind)())
        found[kind.replace("string", "binary")] = pa.array(
            [word.encode() for word in words], getattr(pa, kind.replace("string", "binary"))()
        )
    for kind in ("list_", "large_list"):
        found[kind] = pa.array(lists, getattr(pa, kind)(pa.int16()))
        found[f"{kind} of {kind}"] = pa.array(
            [[row, []] for row in lists], getattr(pa, kind)(getattr(pa, kind)(pa.float64()))
        )
        found[f"{kind} of text"] = pa.array(
            [[words[i % 11] for i in row] for row in lists], getattr(pa, kind)(pa.string())
        )
        found[f"{kind} of views"] = pa.array(
            [[words[i % 11] for i in row] for row in lists], getattr(pa, kind)(pa.string_view())
        )
        found[f"{kind} of pairs"] = pa.array(
            [[[i, i] for i in row] for row in lists], getattr(pa, kind)(pa.list_(pa.int8(), 2))
        )
        found[f"pairs of {kind}"] = pa.array(
            [[row, row] for row in lists], pa.list_(getattr(pa, kind)(pa.int64()), 2)
        )
    found["pairs of pairs"] = pa.array(
        [[[i, 1], [i, 2], [i, 3]] for i in range(11)], pa.list_(pa.list_(pa.int32(), 2), 3)
    )
    found["pairs of text"] = pa.array([[word, "x"] for word in words], pa.list_(pa.string(), 2))
    found["mixed lists"] = pa.array([[row] for row in lists], pa.list_(pa.large_list(pa.int8())))
    found["dictionary"] = pa.array(words).dictionary_encode()
    found["dictionary of numbers"] = pa.array(
        [5, 7, 5, 9, 9, 9, 7, 5, 5, 5, -1]
    ).dictionary_encode()
    found["dictionary by bytes"] = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 1, 0, 2, 2, 0, 0, 1, 2, 1], pa.uint8()), ["x", "y", "zz"]
    )
    found["list of dictionary"] = pa.ListArray.from_arrays(
        [0, 2, 2, 3, 4, 4, 5, 6, 7, 8, 9, 11], pa.array(words).dictionary_encode()
    )
    storage = pa.FixedSizeListArray.from_arrays(pa.array(range(66), pa.int32()), 6)
    found["permuted"] = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=[1, 0]), storage
    )
    return found


def framed(fields, message, body):
    """A stream of one batch, from what the kernels write."""
    head = native.ipc_schema(fields, [])
    return (
        b"".join(
            b"\xff\xff\xff\xff" + len(part).to_bytes(4, "little") + part for part in (head, message)
        )
        + body
    )
