"""Wire formats: how protobuf, TFRecord, npy, zip, Arrow, LevelDB and JSON lay out bytes.

`kernels` has the hot loops, either from the native extension or, with TENSORWIRE_PURE=1, from their
readable twins in `reference`.
"""
