"""Messages of TensorFlow Serving's gRPC API: requests and answers are built and parsed without I/O,
TensorFlow or the protobuf runtime.

`messages` exports all of them. A client uses `build_predict` and `parse_predict_answer`, a server
`parse_predict` and `build_predict_answer`; classify, regress, metadata and status are alike. The
`build` functions return a list of buffers, in which large tensors are not copied.

This module has the full names of the methods, and the status codes.
"""

from __future__ import annotations

PREDICT = "/tensorflow.serving.PredictionService/Predict"
CLASSIFY = "/tensorflow.serving.PredictionService/Classify"
REGRESS = "/tensorflow.serving.PredictionService/Regress"
METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"

CODES = {
    0: ("OK", 200),
    1: ("CANCELLED", 499),
    2: ("UNKNOWN", 500),
    3: ("INVALID_ARGUMENT", 400),
    4: ("DEADLINE_EXCEEDED", 504),
    5: ("NOT_FOUND", 404),
    6: ("ALREADY_EXISTS", 409),
    7: ("PERMISSION_DENIED", 403),
    8: ("RESOURCE_EXHAUSTED", 429),
    9: ("FAILED_PRECONDITION", 400),
    10: ("ABORTED", 409),
    11: ("OUT_OF_RANGE", 400),
    12: ("UNIMPLEMENTED", 501),
    13: ("INTERNAL", 500),
    14: ("UNAVAILABLE", 503),
    15: ("DATA_LOSS", 500),
    16: ("UNAUTHENTICATED", 401),
}
"""gRPC status codes: the name, and the HTTP status of the same error in TensorFlow Serving's REST
API.
"""
