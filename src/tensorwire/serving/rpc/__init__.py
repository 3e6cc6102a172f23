"""TensorFlow Serving's gRPC messages, both ways, without I/O, TensorFlow or the protobuf runtime.

`messages` has them all. A client uses `build_predict` and `parse_predict_answer`, a server
`parse_predict` and `build_predict_answer`, and so on for classify, regress, metadata and status.
What is built is a list of buffers, in which large tensors are not copied.
"""
