"""Values: dtypes, memory, strings, sparse and ragged tensors, bundles. Nothing here knows a file or
a framework.
"""
