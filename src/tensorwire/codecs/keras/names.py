"""What Keras calls the weights of a model, by its config: `layers/dense/vars/0` is `hidden/kernel`.

A weights file numbers the variables of each layer, and knows each layer's name. The config knows
each layer's class and options, from which follows what its variables are called. Nothing in the
config is ever executed: it is text, and this table. Where a class is not in it, or has another
number of variables than it should have, names stay those of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

_KERNEL = ("kernel", "bias?use_bias")
_CELL = ("kernel", "recurrent_kernel", "bias?use_bias")
_NORM = ("gamma?scale", "beta?center")
_CONVS = (
    "Conv1D",
    "Conv2D",
    "Conv3D",
    "Conv1DTranspose",
    "Conv2DTranspose",
    "Conv3DTranspose",
    "DepthwiseConv1D",
    "DepthwiseConv2D",
)
_VARIABLES: dict[str, tuple[str, ...]] = {
    "Dense": _KERNEL,
    "EinsumDense": ("kernel", "bias?bias_axes"),
    **dict.fromkeys(_CONVS, _KERNEL),
    "SeparableConv1D": ("depthwise_kernel", "pointwise_kernel", "bias?use_bias"),
    "SeparableConv2D": ("depthwise_kernel", "pointwise_kernel", "bias?use_bias"),
    "Embedding": ("embeddings",),
    "BatchNormalization": (*_NORM, "moving_mean", "moving_variance"),
    "LayerNormalization": _NORM,
    "GroupNormalization": _NORM,
    "RMSNormalization": ("scale",),
    "Normalization": ("mean", "variance", "count"),
    "PReLU": ("alpha",),
    "LSTMCell": _CELL,
    "GRUCell": _CELL,
    "SimpleRNNCell": _CELL,
}
"""Variables in the order of the file; behind "?" the option without which there is none."""
_RNN = ("LSTM", "GRU", "SimpleRNN")
_HEADS = ("query_dense", "key_dense", "value_dense", "output_dense")
_DEPTH = 32

Layer = Mapping[str, Any]
Groups = Mapping[str, str]
"""Group -> the name of the layer that it is of."""


def names(paths: list[str], groups: Groups, config: Any) -> dict[str, str]:
    """Path -> name, for the weights that the config knows; names are those of `weight.path` in
    Keras, without the model's own.

    >>> dense = {"class_name": "Dense", "config": {"name": "hidden", "use_bias": True}}
    >>> model = {"class_name": "Sequential", "config": {"layers": [dense]}}
    >>> names(["layers/dense/vars/0", "layers/dense/vars/1"], {"layers/dense": "hidden"}, model)
    {'layers/dense/vars/0': 'hidden/kernel', 'layers/dense/vars/1': 'hidden/bias'}
    """
    work = _Names(paths, groups)
    if isinstance(config, dict):
        work.children(config, "", "", 0)
    many = Counter([*work.found.values(), *(path for path in paths if path not in work.found)])
    return {path: name for path, name in work.found.items() if many[name] == 1}


class _Names:
    def __init__(self, paths: list[str], groups: Groups) -> None:
        self.groups = groups
        self.found: dict[str, str] = {}
        self.variables: dict[str, list[str]] = {}
        """Group -> its variables, in order."""
        self.inside: dict[str, list[str]] = {}
        """Group -> the groups directly in it that are layers."""
        for path in paths:
            owner, mark, number = path.rpartition("/vars/")
            if mark and number.isdigit():
                self.variables.setdefault(owner, []).append(path)
        for group in groups:
            self.inside.setdefault(group.rpartition("/")[0], []).append(group)

    def layer(self, layer: Any, group: str, way: str, depth: int) -> None:
        """The variables of one layer, whose group is known, and what is inside."""
        if depth > _DEPTH or group not in self.groups or not isinstance(layer, dict):
            return
        kind, options = layer.get("class_name"), layer.get("config")
        if not isinstance(kind, str) or not isinstance(options, dict):
            return
        own = f"{way}/{self.groups[group]}" if way else self.groups[group]
        variables = self.variables.get(group, [])
        words = [word for text in _VARIABLES.get(kind, ()) if (word := _word(text, options))]
        if len(words) == len(variables):
            self.found |= {
                path: f"{own}/{word}" for path, word in zip(variables, words, strict=True)
            }
        self.children(layer, group, own, depth + 1)

    def children(self, layer: Layer, group: str, way: str, depth: int) -> None:
        """Layers inside a layer or model, each with its group."""
        kind, options = layer.get("class_name"), layer.get("config")
        if not isinstance(options, dict):
            return
        start = f"{group}/" if group else ""
        inner = options.get("layers")
        if isinstance(inner, list):
            known = {_name(one): one for one in inner if isinstance(one, dict)}
            for child in self.inside.get(f"{start}layers", []):
                self.layer(known.get(self.groups[child]), child, way, depth)
        elif kind in _RNN:
            self.layer({"class_name": f"{kind}Cell", "config": options}, f"{start}cell", way, depth)
        elif kind == "Bidirectional":
            self.layer(options.get("layer"), f"{start}forward_layer", way, depth)
            self.layer(
                options.get("backward_layer") or options.get("layer"),
                f"{start}backward_layer",
                way,
                depth,
            )
        elif kind == "MultiHeadAttention":
            head = {
                "class_name": "EinsumDense",
                "config": {"bias_axes": options.get("use_bias", True)},
            }
            for name in _HEADS:
                self.layer(head, f"{start}{name}", way, depth)
        elif "layer" in options:
            self.layer(options["layer"], f"{start}layer", way, depth)


def _word(text: str, options: Mapping[str, Any]) -> str | None:
    """The name of a variable, if a layer with these options has it."""
    name, _, option = text.partition("?")
    return name if not option or options.get(option, option != "bias_axes") else None


def _name(layer: Layer) -> str | None:
    """A layer's own name, which stands beside its config, or in it."""
    options = layer.get("config")
    found = layer.get("name") or (options.get("name") if isinstance(options, dict) else None)
    return found if isinstance(found, str) else None
