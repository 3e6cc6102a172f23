"""What tensors, files and records look like, for the command, the page and notebooks.

statistics   least, largest, mean, zeros, NaN; histograms
runs         numbers of a dense tensor in runs, however large it is
sampling     as much of a tensor as is shown
records      records of record files, decoded
text         statistics, corners of arrays and lists in few characters; plain data for JSON
pictures     heat maps, histograms and sparsity patterns out of characters
images       what the first bytes of a picture file say; tensors as PNG
selection    slices, and which names are meant
values       each kind of tensor as lines and as plain data
tree         nested values
contents     a file of tensors
html         values and reports as boxes, in which nothing that came from the data is markup
"""
