"""Arrays as text and as HTML: for terminals, for notebooks, and for whoever wants to look before
reading.

Plain NumPy arrays, lists and text go in, lines or markup come out. Nothing here knows what a file
is, so that even `tensors` may use it.

statistics   least, largest, mean, zeros, NaN; histograms
words        text that only shows
figures      numbers, strings and corners of arrays, in few characters
pictures     heat maps, histograms and sparsity patterns out of characters
images       what the first bytes of a picture say: JPEG, PNG, GIF, WebP
markup       a box with a heading, a table and lines, where nothing that came from the data can
             become markup
notebook     each kind of tensor in such a box
"""
