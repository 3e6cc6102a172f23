"""What is in a file, to look at: `show` of the command line, and whatever else wants lines.

selection    `0,:,3`, and which names are meant
sampling     reading as much of a tensor as is shown
values       a tensor by its kind: statistics, a corner, a picture
tree         nested values
where        `label == 3 and len(ids) > 2`, over records
records      records with their features
contents     a file of tensors: the tree, and each tensor
"""
