"""SavedModel messages, made by hand."""

from support.protos import block, field, signed


def number(place, value):
    return field(place, 0, signed(value))


def text(place, value):
    return block(place, value.encode() if isinstance(value, str) else value)


def shape(dims):
    return (
        number(3, 1)
        if dims is None
        else b"".join(block(2, number(1, -1 if dim is None else dim)) for dim in dims)
    )


def tensor(dtype, dims, name="x:0"):
    return text(1, name) + number(2, dtype) + block(3, shape(dims))


def entry(key, value):
    return text(1, key) + block(2, value)


def signature(inputs, outputs=(), method="tensorflow/serving/predict"):
    named = [block(1, entry(name, info)) for name, info in inputs] + [
        block(2, entry(name, info)) for name, info in outputs
    ]
    return b"".join(named) + (text(3, method) if method else b"")


def graph(*parts, tags=("serve",)):
    return block(2, block(1, b"".join(text(4, tag) for tag in tags)) + b"".join(parts))


def model(inputs, **options):
    return number(1, 1) + graph(block(5, entry("serving_default", signature(inputs))), **options)
