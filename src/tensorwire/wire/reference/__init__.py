"""Reference kernels: each does the same as its native twin, in plain Python.

Property tests check that the two are equal, including status codes and offsets. `_native.pyi`
documents the functions.
"""
