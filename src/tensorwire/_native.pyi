"""What each kernel promises. `wire/reference/` has a readable twin of every one, with the same
signature and the same results.

A kernel returns (status, offset, ...) and never raises for bad data; wire/protobuf.py turns a
status into an error.
"""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Scan = tuple[int, int, int, tuple[int, ...], bool, int, int, bool, int, int, tuple[int, ...]]

def register_dtype(
    dtype: np.dtype[Any], tf_enum: int, safetensors: str, writes: bool, checked: bool
) -> None:
    """Adds a row of the dtype table (0 and "" for names that it lacks): `checked` types have bytes
    that are no value (bool, int4 ...).
    """

def encode_dense(array: Any) -> bytes | None:
    """An ndarray as a TensorProto, exactly as TensorFlow writes it; None if it cannot be copied as
    it lies, or is past 2 GiB.
    """

def decode_dense(data: Any, copy: bool) -> Array | None:
    """The array of a TensorProto in TensorFlow's usual form, by the memory rules; None for any
    other form, valid or not.
    """

def encode_named(value: Any) -> bytes | None:
    """One array, or a dict of arrays, as a safetensors file; None if it needs more words than its
    names, or lies in another order.
    """

def decode_named(data: Any, copy: bool) -> Any:
    """The array, or dict of arrays, of a safetensors file with a plain header, by the memory rules;
    None for any other, valid or not.
    """

def named_header(names: list[str], arrays: list[Array], metadata: bytes) -> bytes | None:
    """The header of a safetensors file whose tensors are in the order of the file; None if a name
    or array is not plain.
    """

def read_named(data: Any, copy: bool) -> tuple[bytes, dict[str, Array]] | None:
    """(the JSON of the metadata or nothing, arrays by name) of a file with a plain header; None for
    any other, valid or not.
    """

def dense_header(dtype: int, shape: tuple[int, ...], content: int) -> bytes:
    """dtype, shape, and the content field's tag and length (none if `content` is negative)."""

def tensor_scan(data: Any, strict: bool, stop_at_strings: bool) -> Scan:
    """(status, offset, dtype, shape, unknown_rank, name offset, name size, has content, content
    offset, content size, values by field).
    """

def typed_vals(
    data: Any, field: int, strict: bool, width: int, lowest: int, highest: int, room: int
) -> tuple[int, int, int, Array]:
    """(status, offset, count, uint8 array of width * room): the values of one typed field, in the
    tensor's own width.
    """

def string_vals(prefix: Any, data: Any, offsets: Array) -> bytes:
    """`prefix`, then each string as a string_val field."""

def string_lengths(prefix: Any, data: Any, offsets: Array) -> bytes:
    """`prefix`, then the length of each string as a varint."""

def parse_string_vals(
    data: Any, start: int, only_strings: bool, n: int, room: int
) -> tuple[int, int, int, int, Array, Array]:
    """(status, offset, count, used, data, offsets): up to n strings of at most `room` bytes in all,
    copied.
    """

def find_string_vals(
    data: Any, start: int, only_strings: bool, n: int
) -> tuple[int, int, int, Array, Array]:
    """(status, offset, count, starts, sizes): where up to n strings lie."""

def parse_string_lengths(data: Any, n: int) -> tuple[int, int, Array]:
    """(status, offset, offsets): where the bytes of n strings begin in a tensor_content, and their
    offsets from there.
    """

def join(chunks: list[Any]) -> bytes:
    """All chunks in one bytes object."""

def crc32c(data: Any, value: int = 0) -> int:
    """CRC32C, continued from `value`."""

def crc32c_software(data: Any, value: int = 0) -> int:
    """The same without the CRC instructions, for the tests."""

def frame_scan(
    data: Any, start: int, check: bool, longest: int, most: int
) -> tuple[int, int, Array, Array]:
    """(status, offset, starts, sizes): where the data of whole TFRecord frames lie from `start` on,
    at most `most` of them.

    OK: the buffer ends with the last frame, or there are `most`; offset is where the next one
    begins. Otherwise offset is where the frame at fault begins: TRUNCATED (it is not whole),
    BAD_LENGTH_CRC, BAD_DATA_CRC (only with `check`), TOO_LONG (past `longest` bytes).
    """

def frame_find(data: Any, start: int, longest: int) -> int:
    """The first offset from `start` on where a header stands whose checksum holds and whose length
    is at most `longest`, or len(data).
    """

def frame_chain(
    data: Any, start: int, stop: int, longest: int, total: int, near: int, checks: int, guess: int
) -> tuple[int, int]:
    """(offset, checks left): the same, before `stop`, for a header that begins a chain of frames,
    or may do so and needs more than `data`.

    It does if the file (`total` bytes from the beginning of the data on) ends with its frame, or
    another header follows, and none stands right behind it. Otherwise its data's checksum tells; a
    wrong one costs `guess` or as many of the `checks` as the data has bytes, and counts as wrong if
    they are fewer. A frame that does not end in sight is passed over if it begins before `near`.
    """

def frame_list(data: Any, starts: Array, sizes: Array) -> list[bytes]:
    """Parts of a buffer as bytes objects."""

def frame(data: Any) -> bytes:
    """One record in its frame."""

def frames(data: Any, offsets: Array) -> bytes:
    """Records data[offsets[i]:offsets[i + 1]], each in its frame."""

Input = tuple[bytes, int, bool, int, Array, Array | None, Array | None, Array | None, Array | None]

def example_encode(
    columns: list[Input],
    sequence: bool,
    first: int,
    step: int,
    count: int,
    framed: bool,
    out: Array,
    ends: Array | None,
) -> tuple[int, int, int, int]:
    """(status, done, used, wanted): rows first, first + step, ... (`count` of them) as Examples or
    SequenceExamples, written into `out`.

    A column is (name, kind, is a feature list, length, values, offsets, splits, steps, present):
    arrays as `ExampleDecoder.decode` makes them; present may be None (all are). Columns stand in a
    message in the order given. With `framed` each message is in a TFRecord frame; ends[i], if
    wanted, is where message i (with its frame) ends in `out`. NO_SPACE: the next message takes
    `wanted` bytes, more than are left. OUT_OF_RANGE: a column contradicts itself, or a message is
    past 2 GiB. `done` messages of `used` bytes were written.
    """

class ExampleSurvey:
    """Which features Examples (and SequenceExamples) have: kinds, presence, numbers of values,
    ranges; at most `most_names` of them.
    """

    def __init__(self, most_names: int) -> None: ...
    def add(self, data: Any, starts: Array, sizes: Array, checked: bool) -> tuple[int, int, int]:
        """(status, offset, done): counts the messages in; a message at fault counts nothing.
        TOO_MANY: too many names.
        """

    @property
    def others(self) -> int:
        """Messages of another type: they have fields, but none that an Example has."""

    def result(self) -> tuple[int, int, list[Any]]:
        """(messages, those with a feature_lists field, features), features in the order of (is a
        list, name), each a tuple of

        name (bytes), is a feature list, messages that have it, instances by kind (no list, bytes,
        float, int64; a feature without a list counts only there), fewest and most values of an
        instance, values in all, (least, most) int64 (INT64_MAX, INT64_MIN if none), (least, most)
        float (inf, -inf if none; NaN does not count), NaNs, (shortest, longest) string, (fewest,
        most) steps of a list. A name that stands twice in a message counts once, as its last one.
        """

Output = tuple[Array, Array | None, Array | None, Array | None, Array]

class ExampleDecoder:
    """Serialized tf.train.Example or SequenceExample messages into columns.

    A column is a feature's name (bytes), its kind (1 bytes, 2 float, 3 int64: the field numbers of
    tf.train.Feature), how many values every feature of it must have (-1: any number), and whether
    it is a feature list (of a SequenceExample; then each of its Features counts as an instance,
    else each record has one instance). Kind 4 is a bytes list of fixed length of which the column
    has not the strings but their places: (start, size) of each in `data`.

    `compat` selects the rules that messages are read by: protobuf's (0), or those of TensorFlow's
    own parser, which `wire/reference/example_compat.py` lists. With 1 an unset Feature does not
    hide an earlier one of its name, with 2 it does. Columns of kind 4 are refused with 1 and 2, and
    `strange` is always False.
    """

    def __init__(
        self,
        names: list[bytes],
        kinds: list[int],
        lengths: list[int],
        lists: list[bool],
        sequence: bool,
        compat: int = 0,
    ) -> None: ...
    def decode(
        self,
        data: Any,
        starts: Array,
        sizes: Array,
        first: int,
        row: int,
        outputs: list[Output],
        checked: bool,
    ) -> tuple[int, int, int, int, int, bool]:
        """(status, offset, done, column, found, strange): messages from number `first` on, into
        rows from number `row` on, until either is used up.

        Message i is data[starts[i]:starts[i] + sizes[i]]; `checked` says that the masked CRC32C of
        each was checked already, else it is checked here (it stands in the four bytes behind the
        message). An output is (values, offsets, splits, steps, present), writable:

        values    float32, int64, or for kind 1 uint8, 1-d: all values, one after the other (kind 4:
                  int64, two numbers a value)
        offsets   int64, for kind 1 only: value i is values[offsets[i]:offsets[i + 1]]
        splits    int64, for length -1 only: instance j has the values from number splits[j] to
                  number splits[j + 1]
        steps     int64 [rows + 1], for feature lists only: row r has the instances from number
                  steps[r] to steps[r + 1]
        present   bool [rows]: whether the record has the feature at all; its length is the number
                  of rows

        The caller has set offsets[0], splits[0] and steps[0] to 0; what earlier calls wrote says
        where to go on. A feature that is missing gets zeros (empty strings) where the length is
        fixed, no values elsewhere. Status NO_SPACE names a column whose buffers are full: message
        first + done was not decoded, and as many more values, bytes and splits as it has bytes are
        enough (if it lacks a feature of fixed length: that length). With WRONG_KIND and
        WRONG_LENGTH `found` is the kind or the number of values found. `strange` says that a
        message of those that are done has a feature that no column takes, or a field that no
        Example has. Offsets are those of `data`.
        """

def snappy_decode(data: Any, limit: int) -> tuple[int, int, bytes | None]:
    """(status, offset, the data of a raw Snappy block, or None if something is wrong with it): at
    most `limit` bytes.
    """

def table_block(data: Any, room: int) -> tuple[Any, ...]:
    """(status, offset, keys, key_offsets, starts, sizes) of a LevelDB block: all keys in full, one
    after the other and at most `room` bytes of them, where each begins, and where its value lies in
    the block. (status, offset, None) if something is wrong."""

def bundle_block(
    block: Any, room: int, first: int, suffix: bytes, itemsizes: bytes, shards: int
) -> tuple[Any, ...]:
    """(status, offset, last key, names, shapes, places, crcs, kinds) of the checkpoint entries in
    such a block, from number `first` on; (status, offset, the key of the entry that is wrong, or
    None) if something is wrong.

    A name is what a key has before the `suffix`; a key that begins with 0 is bytes. `places` are
    three columns of int64, one after the other: shard, offset, size; `kinds` four of uint8: dtype,
    whether there was the suffix, whether the tensor is in slices, whether the name has a dot. A
    dtype's `itemsizes` are its bytes an element, 0 for no dtype, and 255 where the shape does not
    say how many bytes there are."""

def shuffle(data: Any, item: int, block: int, out: Array) -> None:
    """Writes the bytes of each block (a multiple of `item`; the last may be shorter) into `out`, a
    uint8 array of the same size and other memory: the first byte of all items, then the second of
    all, and so on. What is no whole item at the end stays as it is."""

def unshuffle(data: Any, item: int, block: int, out: Array) -> None:
    """The inverse."""

def merge_planes(planes: list[Any], out: Array) -> None:
    """The same for one block whose planes lie apart: item i gets byte i of each. A plane of one
    byte stands for as many as there are items."""

def ipc_message(data: Any) -> tuple[int, int, int, int, int, Any]:
    """(status, offset, version, kind, bytes of the body, what it says): a message of Arrow's IPC
    format.

    A schema (1) says (endianness, fields, metadata), a batch (3) says (rows, nodes [n, 2], buffers
    [n, 2], codec, counts of further buffers), a dictionary (2) says (id, whether it is a delta,
    batch). Fields are (name, type, width, signed, number of children, (id, bits, signed) of a
    dictionary's index or None, metadata), each followed by its children.
    """

def ipc_footer(data: Any) -> tuple[int, int, int, Any, Any, Any]:
    """(status, offset, version, schema, dictionaries [n, 3], batches [n, 3]): the footer of Arrow's
    IPC file.

    Blocks are offset, length, body.
    """

def ipc_schema(fields: list[Any], pairs: list[Any]) -> bytes:
    """The message of a schema, its fields and metadata as `ipc_message` gives them; no
    dictionaries.
    """

def ipc_batch(length: int, nodes: list[Any], buffers: list[Any], codec: int, body: int) -> bytes:
    """The message of a batch."""

def ipc_end(fields: list[Any], pairs: list[Any], blocks: list[Any]) -> bytes:
    """The footer of a file; blocks of batches are (offset, length, body)."""

def json_write_numbers(
    before: bytes,
    values: Any,
    kind: int,
    levels: tuple[int | Array, ...],
    bare: bool,
    indent: int,
    margin: int,
    after: bytes,
) -> bytes:
    """`before`, the values as JSON, `after`. A value is its own bytes in C order, `kind` its place
    in KINDS of wire/reference/json_numbers.py.

    Lists nest by `levels`, outer to inner: a length that all lists of that depth have, or int64
    row_splits. None: a bare number. NaN and the infinities are strings, or with `bare` the tokens
    NaN, Infinity, -Infinity. With indent >= 0 each list of lists takes a line an item, indented by
    so much more than the `margin` of the line in which the first one begins.
    """

def json_read_numbers(
    text: Any, at: int, kind: int, shape: tuple[int, ...] | None, ragged: bool, most: int
) -> tuple[int, int, int, tuple[int, ...], Array | None, list[Array]]:
    """(status, offset of the fault, end, shape, the values' bytes, row_splits): the value that
    begins at text[at], white space before it or not.

    Of the given shape (without zeros: there is nothing to read then), or of the one that its lists
    have; with `ragged` they need not be equally long, and shape is that of the outermost list.
    OVER_LIMIT: more than `most` numbers. Never more than half as many as the text has bytes.
    """

def json_skip(
    text: Any, at: int, most_depth: int, past_dollars: bool
) -> tuple[int, int, int, bool]:
    """(status, end, depth, stopped): where the list or object that begins at text[at] ends, by its
    brackets and strings alone.

    And how deep it nests; or, stopped, where a string in it begins with "$", unless told to go past
    them. Otherwise `end` is that of the fault.
    """

def decode_columns(data: Any, copy: bool) -> Any:
    """The array, or dict of arrays, of a plain Arrow file (numbers in one batch), by the memory
    rules; None for any other, valid or not.
    """

def encode_columns(value: Any, each: int) -> bytes | None:
    """One array of numbers, or a dict of them that share their first dimension, as an Arrow file.

    None if it needs more words, or if there are more than `each` bytes a column.
    """
