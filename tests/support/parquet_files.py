"""Parquet files made by hand."""


def written(table, **options):
    """The bytes that pyarrow writes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return sink.getvalue().to_pybytes()


def _varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _element(name, children=0):
    kind = (
        b"\x15\x00" + bytes([0x25, 0, 0x18]) if children else b"\x15\x02" + bytes([0x25, 0, 0x18])
    )
    kind = bytes([0x35, 0, 0x18]) if children else kind
    return (
        kind
        + _varint(len(name))
        + name
        + (bytes([0x15]) + _varint(2 * children) if children else b"")
        + b"\0"
    )


def schema_of(depth):
    """The thrift of a footer whose types are that deep."""
    elements = [_element(b"x", 1)] * (depth + 1) + [_element(b"x")]
    return (
        bytes([0x15, 2, 0x19, 0xFC])
        + _varint(len(elements))
        + b"".join(elements)
        + bytes([0x16, 0, 0x19, 0x0C, 0])
    )


def file(footer):
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
