"""`tensorwire view`: a local page that shows what is in tensor files, record files, checkpoints and
SavedModels. What tensors and records look like is in `explore`.

    catalog        the files and folders that were given, each under an id; nothing else can be
                   asked for
    opened         files that are open, and tensors that were read
    viewport       down-sampled windows and line plots
    kinds          pages of statistics, strings, ragged rows and sparse patterns
    records        pages of records, their schema, whether they are whole
    models         signatures of SavedModels, and requests for them
    comparing      two tensors
    guard app      who may ask, and what is answered
    page/          what the browser gets: plain HTML, CSS and JavaScript

The server never sends a whole tensor: what the page gets is bounded, and so is what is read for it.
"""
