"""safetensors files made by hand."""

import json


def file(tensors):
    """A file of (name, dtype, shape, data)."""
    header, data = {}, b""
    for name, dtype, shape, content in tensors:
        offsets = [len(data), len(data) + len(content)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        data += content
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data
