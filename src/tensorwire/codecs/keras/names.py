"""Weight names of a Keras model, derived from its config: `layers/dense/vars/0` -> `hidden/kernel`.

A weights file numbers the variables of each layer and stores the layer's name. The config has each
layer's class and options, and the table below maps those to variable names. Nothing in the config
is executed. If a class is not in the table, or has an unexpected number of variables, its weights
keep their path in the file.
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
"""Variables in file order; "?" precedes the option without which the variable does not exist."""
_RNN = ("LSTM", "GRU", "SimpleRNN")
_HEADS = ("query_dense", "key_dense", "value_dense", "output_dense")
_DEPTH = 32

Layer = Mapping[str, Any]
Groups = Mapping[str, str]
"""Group -> the name of its layer."""


def names(paths: list[str], groups: Groups, config: Any) -> dict[str, str]:
    """Maps paths to names for the weights that the config describes.

    Names are `weight.path` in Keras, without the model's own name.

    >>> dense = {"class_name": "Dense", "config": {"name": "hidden", "use_bias": True}}
    >>> model = {"class_name": "Sequential", "config": {"layers": [dense]}}
    >>> names(["layers/dense/vars/0", "layers/dense/vars/1"], {"layers/dense": "hidden"}, model)
    {'layers/dense/vars/0': 'hidden/kernel', 'layers/dense/vars/1': 'hidden/bias'}
    """
    work = _Names(paths, groups)
    if isinstance(config, dict):
        work.children(config, "", "", 0)
    many = Counter([*work.names.values(), *(path for path in paths if path not in work.names)])
    return {path: name for path, name in work.names.items() if many[name] == 1}


class _Names:
    def __init__(self, paths: list[str], groups: Groups) -> None:
        self.groups = groups
        self.names: dict[str, str] = {}
        """Path -> name of the weights that have one."""
        self.variables: dict[str, list[str]] = {}
        """Group -> the paths of its variables in order."""
        self.inside: dict[str, list[str]] = {}
        """Group -> its direct child groups that are layers."""
        for path in paths:
            owner, mark, number = path.rpartition("/vars/")
            if mark and number.isdigit():
                self.variables.setdefault(owner, []).append(path)
        for group in groups:
            self.inside.setdefault(group.rpartition("/")[0], []).append(group)

    def layer(self, layer: Any, group: str, prefix: str, depth: int) -> None:
        """Names the variables of one layer and of the layers in it."""
        if depth > _DEPTH or group not in self.groups or not isinstance(layer, dict):
            return
        kind, options = layer.get("class_name"), layer.get("config")
        if not isinstance(kind, str) or not isinstance(options, dict):
            return
        layer_path = f"{prefix}/{self.groups[group]}" if prefix else self.groups[group]
        variables = self.variables.get(group, [])
        words = [word for text in _VARIABLES.get(kind, ()) if (word := _word(text, options))]
        if len(words) == len(variables):
            self.names |= {
                path: f"{layer_path}/{word}" for path, word in zip(variables, words, strict=True)
            }
        self.children(layer, group, layer_path, depth + 1)

    def children(self, layer: Layer, group: str, prefix: str, depth: int) -> None:
        """Names the variables of the layers inside a layer or model."""
        kind, options = layer.get("class_name"), layer.get("config")
        if not isinstance(options, dict):
            return
        start = f"{group}/" if group else ""
        inner = options.get("layers")
        if isinstance(inner, list):
            configs = {_name(config): config for config in inner if isinstance(config, dict)}
            for child in self.inside.get(f"{start}layers", []):
                self.layer(configs.get(self.groups[child]), child, prefix, depth)
        elif kind in _RNN:
            self.layer(
                {"class_name": f"{kind}Cell", "config": options}, f"{start}cell", prefix, depth
            )
        elif kind == "Bidirectional":
            self.layer(options.get("layer"), f"{start}forward_layer", prefix, depth)
            self.layer(
                options.get("backward_layer") or options.get("layer"),
                f"{start}backward_layer",
                prefix,
                depth,
            )
        elif kind == "MultiHeadAttention":
            head = {
                "class_name": "EinsumDense",
                "config": {"bias_axes": options.get("use_bias", True)},
            }
            for name in _HEADS:
                self.layer(head, f"{start}{name}", prefix, depth)
        elif "layer" in options:
            self.layer(options["layer"], f"{start}layer", prefix, depth)


def _word(text: str, options: Mapping[str, Any]) -> str | None:
    """Returns the name of a variable; None if a layer with these options lacks it."""
    name, _, option = text.partition("?")
    return name if not option or options.get(option, option != "bias_axes") else None


def _name(layer: Layer) -> str | None:
    """Returns a layer's own name, which is beside its config or in it."""
    options = layer.get("config")
    name = layer.get("name") or (options.get("name") if isinstance(options, dict) else None)
    return name if isinstance(name, str) else None
