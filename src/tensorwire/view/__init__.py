"""The local web page of `tensorwire view`: tensor files, record files, checkpoints and SavedModels.

    catalog        the files and folders on the command line, each under an id
    opened         caches of open files and of tensors
    viewport       downsampled windows of tensors, and line plots
    kinds          pages of statistics, strings, ragged rows and sparse patterns
    records        pages of records, their schema and integrity
    models         signatures of SavedModels, and requests to them
    comparing      the difference of two tensors
    guard          access control: token, Host header, request size
    app            the HTTP API
    page/          the page itself: plain HTML, CSS and JavaScript

The server never sends a whole tensor: the size of a response is bounded, and so are the bytes that
are read for it. The text and statistics of tensors and records come from `explore`.
"""
