"""`tensorwire view`: a local page that shows what is in tensor files, record files, checkpoints and
SavedModels.

    catalog        the files and folders that were given, each under an id; nothing else can be
                   asked for
    opened         files that are open, and tensors that were read
    reading        numbers in runs, however large the tensor is
    windows        down-sampled windows and line plots
    statistics     what the numbers amount to, of all of them or of a sample
    kinds          pages of strings, ragged rows and sparse patterns
    images         PNG of tensors; pictures in strings
    records        pages of records, their schema, whether they are whole
    models         signatures of SavedModels, and requests for them
    comparing      two tensors
    guard app      who may ask, and what is answered
    page/          what the browser gets: plain HTML, CSS and JavaScript

The server never sends a whole tensor: what the page gets is bounded, and so is what is read for it.
"""
