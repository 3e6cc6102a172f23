"""Bytes only: the wire formats as they are, without any notion of a tensor.

`kernels` are the hot loops, from the extension or from their readable twins in `_pure`
(TENSORWIRE_PURE=1).
"""
