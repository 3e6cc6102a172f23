"""All functions and types for TensorFlow Serving's gRPC messages, in one namespace."""

from __future__ import annotations

from . import CLASSIFY, CODES, METADATA, PREDICT, REGRESS, STATUS
from .examples import (
    RpcExamples,
    build_classify_answer,
    build_examples,
    build_regress_answer,
    parse_classify_answer,
    parse_examples,
    parse_regress_answer,
)
from .fields import FORMAT, ModelSpec
from .metadata import (
    STATES,
    RpcMetadata,
    VersionStatus,
    build_metadata,
    build_metadata_answer,
    build_status,
    build_status_answer,
    parse_metadata,
    parse_metadata_answer,
    parse_status,
    parse_status_answer,
)
from .predict import (
    Predict,
    build_predict,
    build_predict_answer,
    parse_predict,
    parse_predict_answer,
)

__all__ = [
    "CLASSIFY",
    "CODES",
    "FORMAT",
    "METADATA",
    "PREDICT",
    "REGRESS",
    "STATES",
    "STATUS",
    "ModelSpec",
    "Predict",
    "RpcExamples",
    "RpcMetadata",
    "VersionStatus",
    "build_classify_answer",
    "build_examples",
    "build_metadata",
    "build_metadata_answer",
    "build_predict",
    "build_predict_answer",
    "build_regress_answer",
    "build_status",
    "build_status_answer",
    "parse_classify_answer",
    "parse_examples",
    "parse_metadata",
    "parse_metadata_answer",
    "parse_predict",
    "parse_predict_answer",
    "parse_regress_answer",
    "parse_status",
    "parse_status_answer",
]
