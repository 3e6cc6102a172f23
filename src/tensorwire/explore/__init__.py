"""Summaries of tensors, files and records for `tensorwire show`, `tensorwire view` and notebooks.

statistics   min, max, mean, zeros and NaN of an array; histograms
runs         ranges of elements of a dense tensor of any size
sampling     samples of tensors, read with a budget
records      decoded records of record files
text         statistics, corners of arrays and lists as text; plain data for JSON
pictures     heat maps, histograms and sparsity patterns out of characters
images       type and size of image files; tensors as PNG
selection    slices and name patterns
values       each kind of tensor as lines of text and as plain data
tree         nested values
contents     all tensors of a file
html         values and reports as HTML for notebooks, with everything from the data escaped
"""
