"""Reversible transforms of data: compression of streams, and quantization of floats."""
