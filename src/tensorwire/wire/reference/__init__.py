"""The reference kernels: each does what its native twin does, in the plainest Python that says how.
Property tests hold the two equal.
"""
