"""What is done to data on its way into a file and undone on the way out: compression of streams,
quantization of numbers.
"""
