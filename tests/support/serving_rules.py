"""TensorFlow Serving's rules for the JSON of requests, as tables: what it takes, and what it
refuses, in which words, and where.
"""

import numpy as np

import tensorwire as tw

ONE = {"x": ("int32", None)}
TWO = {"a": ("int32", None), "s": ("string", None)}
S, F, D, B, H = (
    {"x": (dtype, None)} for dtype in ("string", "float32", "float64", "bool", "float16")
)

# What is taken: (body, inputs of the signature, layout, the tensors)
TAKEN = {
    "rows, one input": (
        '{"instances": [[1,2],[3,4],[5,6]]}',
        ONE,
        "rows",
        {"x": np.int32([[1, 2], [3, 4], [5, 6]])},
    ),
    "rows of scalars": ('{"instances": [1, 2]}', ONE, "rows", {"x": np.int32([1, 2])}),
    "rows, one input by name": (
        '{"instances": [{"x": [1]}, {"x": [2]}]}',
        ONE,
        "rows",
        {"x": np.int32([[1], [2]])},
    ),
    "rows of nothing": ('{"instances": [[], []]}', ONE, "rows", {"x": np.empty((2, 0), np.int32)}),
    "rows, several inputs": (
        (
            '{"instances": [{"a": [[1,2],[3,4]], "s": ["foo", "bar"]}, {"s": ["baz", {"b64":'
            ' "YmF0"}], "a": [[7,8],[9,0]]}]}'
        ),
        TWO,
        "rows",
        {
            "a": np.int32([[[1, 2], [3, 4]], [[7, 8], [9, 0]]]),
            "s": tw.Strings.of([b"foo", b"bar", b"baz", b"bat"], (2, 2)),
        },
    ),
    "columns, one input": (
        '{"inputs": [[1,2],[3,4]]}',
        ONE,
        "columns",
        {"x": np.int32([[1, 2], [3, 4]])},
    ),
    "columns, a scalar": ('{"inputs": 7}', ONE, "columns", {"x": np.int32(7)}),
    "columns, nothing": ('{"inputs": []}', ONE, "columns", {"x": np.empty(0, np.int32)}),
    "columns, one input by name": ('{"inputs": {"x": [1]}}', ONE, "columns", {"x": np.int32([1])}),
    "columns, first dimensions differ": (
        '{"inputs": {"a": [1,2,3], "s": {"b64": "aGVsbG8="}}}',
        TWO,
        "columns",
        {"a": np.int32([1, 2, 3]), "s": tw.Strings.of([b"hello"], ())},
    ),
    "columns, extra names": (
        '{"inputs": {"z": [[1],2], "x": [1]}}',
        ONE,
        "columns",
        {"x": np.int32([1])},
    ),
    "another key": (
        '{"comment": {"a": [NaN]}, "inputs": [1]}',
        ONE,
        "columns",
        {"x": np.int32([1])},
    ),
    "white space": (
        ' \n{ "inputs"\t: [ [ 1 ,\r\n2 ] , [3,4] ] } ',
        ONE,
        "columns",
        {"x": np.int32([[1, 2], [3, 4]])},
    ),
    "base64 in a row": (
        '{"instances": [{"b64": "aGVsbG8="}, {"b64" : "d29ybGQ="}]}',
        S,
        "rows",
        {"x": tw.Strings.of([b"hello", b"world"])},
    ),
    "base64 without padding": (
        '{"inputs": [{"b64": "YQ"}]}',
        S,
        "columns",
        {"x": tw.Strings.of([b"a"])},
    ),
    "strings of both kinds": (
        '{"inputs": ["a", {"b64": "/+8="}, "é\\n\\u20ac"]}',
        S,
        "columns",
        {"x": tw.Strings.of([b"a", b"\xff\xef", "é\n€".encode()])},
    ),
    "strings that look like lists": (
        '{"inputs": [["[[", "]"], ["{\\"b64\\"", ","]]}',
        S,
        "columns",
        {"x": tw.Strings.of([b"[[", b"]", b'{"b64"', b","], (2, 2))},
    ),
    "floats take integers": (
        '{"inputs": [1, 2.0, 3, 5.003, 0.007, 1e2]}',
        F,
        "columns",
        {"x": np.float32([1, 2, 3, 5.003, 0.007, 100])},
    ),
    "doubles take integers": (
        '{"inputs": [1.0, 2, 0.662]}',
        D,
        "columns",
        {"x": np.float64([1, 2, 0.662])},
    ),
    "bare NaN": (
        '{"inputs": [NaN, Infinity, -Infinity]}',
        F,
        "columns",
        {"x": np.float32([np.nan, np.inf, -np.inf])},
    ),
    "integers that are rounded": (
        '{"inputs": [16777215, -16777216, 16777217, 18446744073709551615]}',
        F,
        "columns",
        {"x": np.float32([16777215, -16777216, 16777216, 2.0**64])},
    ),
    "integers that a double rounds": (
        '{"inputs": [9007199254740993]}',
        D,
        "columns",
        {"x": np.float64([9007199254740992])},
    ),
    "past the range of a float": (
        '{"inputs": [1e39, -3.5e38, 3.4e38]}',
        F,
        "columns",
        {"x": np.float32([np.inf, -np.inf, 3.4e38])},
    ),
    "no rows": ('{"instances": []}', ONE, "rows", {"x": np.empty(0, np.int32)}),
    "no rows of several inputs": (
        '{"instances": []}',
        {"a": ("int32", [None, 3]), "h": ("float16", [None]), "s": ("string", [None, None])},
        "rows",
        {
            "a": np.empty((0, 3), np.int32),
            "h": np.empty(0, np.float16),
            "s": tw.Strings.of([], (0, 0), text=False),
        },
    ),
    "a point makes it a float": (
        '{"inputs": [16777217.0, 1e10]}',
        F,
        "columns",
        {"x": np.float32([16777216, 1e10])},
    ),
    "digits in an exponent": (
        '{"inputs": [100000000.0, 1.00000001, 1e-00000008]}',
        F,
        "columns",
        {"x": np.float32([1e8, 1.00000001, 1e-8])},
    ),
    "an integer past 64 bits is a double": (
        '{"inputs": [36893488147419103232]}',
        D,
        "columns",
        {"x": np.float64([2.0**65])},
    ),
    "bool": ('{"inputs": [[true], [false]]}', B, "columns", {"x": np.array([[True], [False]])}),
    "int8": (
        '{"inputs": [-128, 127]}',
        {"x": ("int8", None)},
        "columns",
        {"x": np.int8([-128, 127])},
    ),
    "int16": ('{"inputs": [-32768]}', {"x": ("int16", None)}, "columns", {"x": np.int16([-32768])}),
    "int64": (
        '{"inputs": [9223372036854775807]}',
        {"x": ("int64", None)},
        "columns",
        {"x": np.int64([2**63 - 1])},
    ),
    "uint8": ('{"inputs": [255]}', {"x": ("uint8", None)}, "columns", {"x": np.uint8([255])}),
    "uint32": (
        '{"inputs": [4294967295]}',
        {"x": ("uint32", None)},
        "columns",
        {"x": np.uint32([2**32 - 1])},
    ),
    "uint64": (
        '{"inputs": [18446744073709551615]}',
        {"x": ("uint64", None)},
        "columns",
        {"x": np.uint64([2**64 - 1])},
    ),
    "a dtype that JSON lacks, and no value": (
        '{"inputs": []}',
        H,
        "columns",
        {"x": np.empty(0, np.float16)},
    ),
}


PARSE = "JSON Parse error: "
ROW = "Failed to process element: {} of 'instances' list. Error: INVALID_ARGUMENT: "
SEVERAL = " as multiple input tensors required as per tensorinfo_map"
KEY = "Failed to process element: {} key: {} of 'instances' list. Error: INVALID_ARGUMENT: "


def wrong(value, dtype, kind="Number"):
    return f"JSON Value: {value} Type: {kind} is not of expected type: {dtype}"


# What is refused: (body, inputs of the signature, status, message, path)
REFUSED = {
    # The document
    "empty": ("", ONE, 400, PARSE + "The document is empty", "$"),
    "white space only": (" \n", ONE, 400, PARSE + "The document is empty.", "$"),
    "a list": ("[1]", ONE, 400, "JSON Value: [\n    1\n] Is not object", "$"),
    "cut": ('{"inputs": [1', ONE, 400, PARSE + "Missing a comma or ] after an array element.", "$"),
    "no comma": (
        '{"inputs": [1 2]}',
        ONE,
        400,
        PARSE + "Missing a comma or ] after an array element.",
        "$",
    ),
    "no comma, an object": (
        '{"inputs": [1] "a": 2}',
        ONE,
        400,
        PARSE + "Missing a comma or } after an object member.",
        "$",
    ),
    "no colon": (
        '{"inputs" [1]}',
        ONE,
        400,
        PARSE + "Missing a colon after a name of object member.",
        "$",
    ),
    "no name": ("{1: 2}", ONE, 400, PARSE + "Missing a name for object member.", "$"),
    "no value": ('{"inputs": [1,]}', ONE, 400, PARSE + "Invalid value.", "$"),
    "behind it": (
        '{"inputs": [1]} {}',
        ONE,
        400,
        PARSE + "The document root must not be followed by other values.",
        "$",
    ),
    "an open string": (
        '{"inputs": ["a]}',
        ONE,
        400,
        PARSE + "Missing a closing quotation mark in string.",
        "$",
    ),
    "a control character": (
        '{"inputs": ["\x01"]}',
        ONE,
        400,
        PARSE + "Invalid encoding in string.",
        "$",
    ),
    "an escape": (
        '{"inputs": ["\\q"]}',
        ONE,
        400,
        PARSE + "Invalid escape character in string.",
        "$",
    ),
    "hexadecimal": (
        '{"inputs": ["\\u12g4"]}',
        ONE,
        400,
        PARSE + "Incorrect hex digit after \\u escape in string.",
        "$",
    ),
    "half a surrogate pair": (
        '{"inputs": ["\\ud800"]}',
        S,
        400,
        PARSE + "The surrogate pair in string is invalid.",
        "$",
    ),
    "the other half": (
        '{"inputs": ["\\udc80"]}',
        S,
        400,
        PARSE + "The surrogate pair in string is invalid.",
        "$",
    ),
    "1e400": ('{"inputs": [1e400]}', D, 400, PARSE + "Number too big to be stored in double.", "$"),
    "a key twice": (
        '{"inputs": [1], "inputs": [2]}',
        ONE,
        400,
        PARSE + "duplicate key in an object, of which Serving would use the first",
        "$",
    ),
    "malformed in what is ignored": (
        '{"other": [1 2], "inputs": [1]}',
        ONE,
        400,
        PARSE + "Missing a comma or ] after an array element.",
        "$",
    ),
    "nested too deep": (
        '{"inputs": ' + "[" * 300 + "]" * 300 + "}",
        ONE,
        400,
        PARSE + "lists and objects are nested too deep",
        "$",
    ),
    # The request
    "a signature that is no text": (
        '{"signature_name": 5, "inputs": [1]}',
        ONE,
        400,
        "'signature_name' key must be a string value.",
        "$.signature_name",
    ),
    "another signature": (
        '{"signature_name": "a", "inputs": [1]}',
        ONE,
        400,
        'Serving signature name: "a" not found in signature def',
        "$.signature_name",
    ),
    "neither": ('{"a": 1}', ONE, 400, "Missing 'inputs' or 'instances' key", "$"),
    "both": (
        '{"instances": [1], "inputs": [1]}',
        ONE,
        400,
        "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ",
        "$",
    ),
    "instances no list": (
        '{"instances": {"x": 1}}',
        ONE,
        400,
        "Excepting 'instances' to be an list/array",
        "$.instances",
    ),
    "no inputs in the signature": (
        '{"inputs": [1]}',
        {},
        400,
        "Failed to get input map for signature: DEFAULT",
        "$",
    ),
    # Names
    "plain rows for several inputs": (
        '{"instances": [1]}',
        TWO,
        400,
        "instances is a plain list, but expecting list of objects" + SEVERAL,
        "$.instances",
    ),
    "a plain column for several inputs": (
        '{"inputs": [1]}',
        TWO,
        400,
        "inputs is a plain value/list, but expecting an object" + SEVERAL,
        "$.inputs",
    ),
    "a string for several inputs": (
        '{"instances": [{"b64": "YQ=="}]}',
        {"a": ("string", None), "s": ("string", None)},
        400,
        (
            "input size does not match signature: 1!=2 len({a}) != len({a,s}). Sent extra: {}."
            " Missing but required: {s}."
        ),
        "$.instances",
    ),
    "a row without a name": (
        '{"instances": [{"a": 1}]}',
        TWO,
        400,
        "keys must be equal to: a,s",
        "$.instances[0]",
    ),
    "a row with another name": (
        '{"instances": [{"a": 1, "s": "", "z": 1}]}',
        TWO,
        400,
        KEY.format(0, "z") + "JSON object: does not have named input: z",
        "$.instances[0].z",
    ),
    "a column without a name": (
        '{"inputs": {"a": [1]}}',
        TWO,
        400,
        "Missing named input: s in 'inputs' object.",
        "$.inputs",
    ),
    "an object, then a list": (
        '{"instances": [{"x": 1}, [1]]}',
        ONE,
        400,
        "Expecting object but got list at item 1 of input list",
        "$.instances[1]",
    ),
    "a list, then an object": (
        '{"instances": [[1], {"x": 1}]}',
        ONE,
        400,
        "Expecting value/list but got object at item 1 of input list",
        "$.instances[1]",
    ),
    # Shapes and levels
    "a longer row": (
        '{"instances": [[1,2],[3,4],[5,6,7]]}',
        ONE,
        400,
        ROW.format(2) + "Expecting tensor size: 2 but got: 3",
        "$.instances[2]",
    ),
    "a deeper row": (
        '{"instances": [[1,2],[[3,4]]]}',
        ONE,
        400,
        ROW.format(1) + "Expecting shape [2] but got: [1,2]",
        "$.instances[1]",
    ),
    "a scalar, then a list": (
        '{"instances": [1, [1]]}',
        ONE,
        400,
        ROW.format(1) + "Expecting shape [] but got: [1]",
        "$.instances[1]",
    ),
    "a deeper row by name": (
        '{"instances": [{"x": [1]}, {"x": [[1]]}]}',
        ONE,
        400,
        KEY.format(1, "x") + "Expecting shape [1] but got: [1,1]",
        "$.instances[1].x",
    ),
    "a ragged row": (
        '{"instances": [[[1,2],[3]]]}',
        ONE,
        400,
        ROW.format(0) + "Encountered list at unexpected size: 1 at level: 1 expected size: 2",
        "$.instances[0][1]",
    ),
    "a ragged column": (
        '{"inputs": [[1,2],[3]]}',
        ONE,
        400,
        "Encountered list at unexpected size: 1 at level: 1 expected size: 2",
        "$.inputs[1]",
    ),
    "nothing, then something": (
        '{"inputs": [[],[1]]}',
        ONE,
        400,
        "Encountered list at unexpected size: 1 at level: 1 expected size: 0",
        "$.inputs[1]",
    ),
    "a value too high": (
        '{"inputs": [[1],2]}',
        ONE,
        400,
        "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2",
        "$.inputs[1]",
    ),
    "a list too low": (
        '{"inputs": [1,[2]]}',
        ONE,
        400,
        "Encountered list at unexpected level: 1 expected < 1",
        "$.inputs[1]",
    ),
    "ragged strings": (
        '{"inputs": [["a"],["b","c"]]}',
        S,
        400,
        "Encountered list at unexpected size: 2 at level: 1 expected size: 1",
        "$.inputs[1]",
    ),
    # Values
    "a float for an int": ('{"inputs": [1, 2.5]}', ONE, 400, wrong("2.5", "int32"), "$.inputs[1]"),
    "a whole float for an int": (
        '{"inputs": [2.0]}',
        ONE,
        400,
        wrong("2.0", "int32"),
        "$.inputs[0]",
    ),
    "an exponent for an int": (
        '{"inputs": [1e3]}',
        ONE,
        400,
        wrong("1000.0", "int32"),
        "$.inputs[0]",
    ),
    "past int32": (
        '{"inputs": [2147483648]}',
        ONE,
        400,
        wrong("2147483648", "int32"),
        "$.inputs[0]",
    ),
    "past int8": (
        '{"inputs": [300]}',
        {"x": ("int8", None)},
        400,
        wrong("300", "int8"),
        "$.inputs[0]",
    ),
    "past int64": (
        '{"inputs": [9223372036854775808]}',
        {"x": ("int64", None)},
        400,
        wrong("9223372036854775808", "int64"),
        "$.inputs[0]",
    ),
    "past uint64": (
        '{"inputs": [18446744073709551616]}',
        {"x": ("uint64", None)},
        400,
        wrong("1.84467441e+19", "uint64"),
        "$.inputs[0]",
    ),
    "negative for unsigned": (
        '{"inputs": [-1]}',
        {"x": ("uint32", None)},
        400,
        wrong("-1", "uint32"),
        "$.inputs[0]",
    ),
    "a bool for an int": (
        '{"inputs": [true]}',
        ONE,
        400,
        wrong("true", "int32", "True"),
        "$.inputs[0]",
    ),
    "an int for a bool": ('{"inputs": [1]}', B, 400, wrong("1", "bool"), "$.inputs[0]"),
    "a string for a float": (
        '{"inputs": ["1.5"]}',
        F,
        400,
        wrong('"1.5"', "float", "String"),
        "$.inputs[0]",
    ),
    "a quoted NaN": (
        '{"inputs": ["NaN"]}',
        D,
        400,
        wrong('"NaN"', "double", "String"),
        "$.inputs[0]",
    ),
    "NaN for an int": ('{"inputs": [NaN]}', ONE, 400, wrong("NaN", "int32"), "$.inputs[0]"),
    "null": ('{"inputs": [null]}', ONE, 400, wrong("null", "int32", "Null"), "$.inputs[0]"),
    "null for a string": (
        '{"inputs": [null]}',
        S,
        400,
        wrong("null", "string", "Null"),
        "$.inputs[0]",
    ),
    "a number for a string": ('{"inputs": ["a", 1]}', S, 400, wrong("1", "string"), "$.inputs[1]"),
    "an object for a number": (
        '{"inputs": [{"b64": "YQ=="}]}',
        ONE,
        400,
        wrong('{\n    "b64": "YQ=="\n}', "int32", "Object"),
        "$.inputs[0]",
    ),
    "a wrong value in a row": (
        '{"instances": [{"a": 1, "s": "x"}, {"a": "y", "s": "x"}]}',
        TWO,
        400,
        KEY.format(1, "a") + wrong('"y"', "int32", "String"),
        "$.instances[1].a",
    ),
    # Base64
    "base64 and another key": (
        '{"inputs": [{"b64": "YQ==", "a": 1}]}',
        S,
        400,
        "not formatted correctly for base64 data",
        "$.inputs[0]",
    ),
    "base64 that is a number": (
        '{"inputs": [{"b64": 1}]}',
        S,
        400,
        "not formatted correctly for base64 data",
        "$.inputs[0]",
    ),
    "another object for a string": (
        '{"inputs": [{"a": "b"}]}',
        S,
        400,
        "not formatted correctly for base64 data",
        "$.inputs[0]",
    ),
    "no base64": (
        '{"inputs": [{"b64": "a-_b"}]}',
        S,
        400,
        "Unable to base64 decode",
        "$.inputs[0]",
    ),
    "half a byte": ('{"inputs": [{"b64": "Y"}]}', S, 400, "Unable to base64 decode", "$.inputs[0]"),
    # Dtypes that JSON lacks
    "half": (
        '{"inputs": [1.5]}',
        H,
        501,
        "Conversion of JSON Value: 1.5 to type: half",
        "$.inputs[0]",
    ),
    "bfloat16": (
        '{"inputs": [1]}',
        {"x": ("bfloat16", None)},
        501,
        "Conversion of JSON Value: 1 to type: bfloat16",
        "$.inputs[0]",
    ),
    "uint16": (
        '{"inputs": [[1]]}',
        {"x": ("uint16", None)},
        501,
        "Conversion of JSON Value: 1 to type: uint16",
        "$.inputs[0][0]",
    ),
    "complex64": (
        '{"inputs": 1}',
        {"x": ("complex64", None)},
        501,
        "Conversion of JSON Value: 1 to type: complex64",
        "$.inputs",
    ),
    "half in a row": (
        '{"instances": [1.5]}',
        H,
        400,
        ROW.format(0).replace("INVALID_ARGUMENT", "UNIMPLEMENTED")
        + "Conversion of JSON Value: 1.5 to type: half",
        "$.instances[0]",
    ),
    "half in a row by name": (
        '{"instances": [{"a": 1, "h": 1}]}',
        {"a": ("int32", None), "h": ("float16", None)},
        400,
        KEY.format(0, "h").replace("INVALID_ARGUMENT", "UNIMPLEMENTED")
        + "Conversion of JSON Value: 1 to type: half",
        "$.instances[0].h",
    ),
}

# The same for classify and regress, which always answer 400: (body, message, path)
REFUSED_EXAMPLES = {
    "a signature that is no text": (
        '{"signature_name": ["a"], "examples": [{"a": 1}]}',
        "'signature_name' key must be a string",
        "$.signature_name",
    ),
    "a context that is a list": (
        '{"context": [{"a": "b"}], "examples": [{}]}',
        "Example must be JSON object but got JSON Array",
        "$.context",
    ),
    "no examples": (
        "{}",
        "When method is classify, key 'examples' is expected and was not found",
        "$",
    ),
    "examples that are an object": (
        '{"examples": {"a": 1}}',
        "Expecting 'examples' value to be an list/array",
        "$.examples",
    ),
    "an empty list": ('{"examples": []}', "'examples' value is an empty array", "$.examples"),
    "a list in the list": (
        '{"examples": [[{"a": 1}]]}',
        "Example must be JSON object but got JSON Array",
        "$.examples[0]",
    ),
    "null": (
        '{"examples": [{"names": [10, null]}]}',
        "Feature: names has element with unexpected JSON type: Null",
        "$.examples[0].names[1]",
    ),
    "an int, then a float": (
        '{"examples": [{"names": [10, 10.0]}]}',
        "Unexpected element type in feature: names expecting type: int64",
        "$.examples[0].names[1]",
    ),
    "a float, then an int": (
        '{"examples": [{"names": [10.0, 10]}]}',
        "Unexpected element type in feature: names expecting type: float",
        "$.examples[0].names[1]",
    ),
    "a string, then an int": (
        '{"examples": [{"a": 1}, {"names": ["a", 1]}]}',
        "Unexpected element type in feature: names expecting type: bytes",
        "$.examples[1].names[1]",
    ),
    "an object": (
        '{"examples": [{"names": [10, {"test": 10}]}]}',
        "Feature: names has element with unexpected JSON type: Object",
        "$.examples[0].names[1]",
    ),
    "a list": (
        '{"examples": [{"names": [[10], 20]}]}',
        "Feature: names has element with unexpected JSON type: Array",
        "$.examples[0].names[0]",
    ),
    "uint64": (
        '{"examples": [{"names": [20, 18446744073709551603]}]}',
        "Feature: names has uint64 element. Only int64 is supported.",
        "$.examples[0].names[1]",
    ),
    "base64": (
        '{"examples": [{"names": {"b64": "*"}}]}',
        "Unable to base64 decode",
        "$.examples[0].names",
    ),
    "cut": (
        '{"examples": [{"names": 1}',
        PARSE + "Missing a comma or ] after an array element.",
        "$",
    ),
}
