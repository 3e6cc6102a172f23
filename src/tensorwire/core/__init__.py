"""Values: dtypes, memory, strings, sparse and ragged tensors, bundles.

Nothing in this package depends on a file format or a framework.
"""
