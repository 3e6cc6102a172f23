"""A model server built on the official stubs of tensorflow-serving-api, with nothing of ours in it:
what our client has to understand.

    python tests/support/stub_server.py --port 0       prints the port that it listens at, and runs until it is ended

Models, version 3 of each, which the label "stable" means:

    adder     x float32 [?, 2] -> y float32 [?], in typed fields, as TensorFlow Serving answers; and its signatures "classify" and
              "regress", which take Examples with two floats "x"
    echo      gives back what it gets, as it got it
    typed     gives back what it gets, in typed fields
    sparse    ids_indices, ids_values, ids_dense_shape -> sums float32 [?]
"""

import argparse
import sys
from concurrent import futures

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

VERSION, LABEL = 3, "stable"
FIELDS = {
    tf.float32: "float_val",
    tf.float64: "double_val",
    tf.int32: "int_val",
    tf.int8: "int_val",
    tf.int64: "int64_val",
    tf.bool: "bool_val",
}
SIGNATURES = {
    "adder": {
        "serving_default": ("predict", {"x": (tf.float32, [None, 2])}, {"y": (tf.float32, [None])}),
        "classify": (
            "classify",
            {"inputs": (tf.string, [None])},
            {"classes": (tf.string, [None, 2]), "scores": (tf.float32, [None, 2])},
        ),
        "regress": ("regress", {"inputs": (tf.string, [None])}, {"outputs": (tf.float32, [None])}),
    },
    "echo": {"serving_default": ("predict", {"x": (tf.float32, None)}, {"x": (tf.float32, None)})},
    "typed": {"serving_default": ("predict", {"x": (tf.float32, None)}, {"x": (tf.float32, None)})},
    "sparse": {
        "serving_default": (
            "predict",
            {
                "ids_indices": (tf.int64, [None, 2]),
                "ids_values": (tf.float32, [None]),
                "ids_dense_shape": (tf.int64, [2]),
            },
            {"sums": (tf.float32, [None])},
        )
    },
}


def typed(array):
    """A TensorProto as TensorFlow Serving writes it: values in the field of their type."""
    if array.dtype == object:
        return tf.make_tensor_proto(array, tf.string, array.shape)
    dtype = tf.as_dtype(array.dtype)
    proto = tf.make_tensor_proto(np.zeros(0, array.dtype))
    proto.Clear()
    proto.dtype = dtype.as_datatype_enum
    proto.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
    getattr(proto, FIELDS[dtype]).extend(array.reshape(-1).tolist())
    return proto


def adder(inputs):
    if sorted(inputs) != ["x"] or inputs["x"].ndim != 2 or inputs["x"].shape[1] != 2:
        raise ValueError(f"adder takes x float32 [?, 2], and got {sorted(inputs)}")
    return {"y": typed(inputs["x"].sum(1))}


def sparse(inputs):
    found = tf.sparse.SparseTensor(
        inputs["ids_indices"], inputs["ids_values"], inputs["ids_dense_shape"]
    )
    return {"sums": typed(tf.sparse.reduce_sum(found, 1).numpy())}


def known(model, context):
    """The model's spec with its version, if there is such a model."""
    if model.name not in SIGNATURES:
        context.abort(
            grpc.StatusCode.NOT_FOUND, f"Servable not found for request: Latest({model.name})"
        )
    choice = model.WhichOneof("version_choice")
    if (choice == "version" and model.version.value != VERSION) or (
        choice == "version_label" and model.version_label != LABEL
    ):
        context.abort(
            grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {choice} of {model.name}"
        )
    found = model_pb2.ModelSpec(
        name=model.name, signature_name=model.signature_name or "serving_default"
    )
    found.version.value = VERSION
    return found


class Prediction(prediction_service_pb2_grpc.PredictionServiceServicer):
    def Predict(self, request, context):
        spec = known(request.model_spec, context)
        if spec.signature_name not in SIGNATURES[spec.name]:
            context.abort(
                grpc.StatusCode.FAILED_PRECONDITION,
                f'Serving signature name: "{spec.signature_name}" not found in signature def',
            )
        answer = predict_pb2.PredictResponse(model_spec=spec)
        if spec.name == "echo":
            outputs = request.inputs
        else:
            inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
            try:
                outputs = (
                    {name: typed(array) for name, array in inputs.items()}
                    if spec.name == "typed"
                    else {"adder": adder, "sparse": sparse}[spec.name](inputs)
                )
            except (ValueError, KeyError) as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        for name, proto in outputs.items():
            if not request.output_filter or name in request.output_filter:
                answer.outputs[name].CopyFrom(proto)
        return answer

    def Classify(self, request, context):
        answer = classification_pb2.ClassificationResponse(
            model_spec=known(request.model_spec, context)
        )
        answer.result.SetInParent()
        for value in self.sums(request.input, context):
            row = answer.result.classifications.add()
            row.classes.add(label="small", score=1 - value)
            row.classes.add(label="large", score=value)
        return answer

    def Regress(self, request, context):
        answer = regression_pb2.RegressionResponse(model_spec=known(request.model_spec, context))
        answer.result.SetInParent()
        for value in self.sums(request.input, context):
            answer.result.regressions.add(value=value)
        return answer

    def sums(self, asked, context):
        shared = asked.example_list_with_context
        for example in asked.example_list.examples or shared.examples:
            features = dict(shared.context.features.feature.items()) | dict(
                example.features.feature.items()
            )
            if "x" not in features or len(features["x"].float_list.value) != 2:
                context.abort(
                    grpc.StatusCode.INVALID_ARGUMENT,
                    "Feature: x (data type: float) is required but could not be found.",
                )
            yield sum(features["x"].float_list.value)

    def GetModelMetadata(self, request, context):
        spec = known(request.model_spec, context)
        if list(request.metadata_field) != ["signature_def"]:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"Metadata field {list(request.metadata_field)} is not supported",
            )
        listed = get_model_metadata_pb2.SignatureDefMap()
        for name, (method, inputs, outputs) in SIGNATURES[spec.name].items():
            one = listed.signature_def[name]
            one.method_name = f"tensorflow/serving/{method}"
            for part, tensors in ((one.inputs, inputs), (one.outputs, outputs)):
                for alias, (dtype, shape) in tensors.items():
                    part[alias].name, part[alias].dtype = f"{alias}:0", dtype.as_datatype_enum
                    part[alias].tensor_shape.CopyFrom(tf.TensorShape(shape).as_proto())
        answer = get_model_metadata_pb2.GetModelMetadataResponse(model_spec=spec)
        answer.metadata["signature_def"].Pack(listed)
        return answer


class Model(model_service_pb2_grpc.ModelServiceServicer):
    def GetModelStatus(self, request, context):
        known(request.model_spec, context)
        answer = get_model_status_pb2.GetModelStatusResponse()
        states = get_model_status_pb2.ModelVersionStatus
        answer.model_version_status.add(
            version=VERSION, state=states.AVAILABLE
        ).status.error_message = ""
        if request.model_spec.WhichOneof("version_choice") is None:
            gone = answer.model_version_status.add(version=VERSION - 1, state=states.END)
            gone.status.error_code, gone.status.error_message = 5, "no longer there"
        return answer


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0)
    port = parser.parse_args().port
    unbounded = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),
    ]
    server = grpc.server(futures.ThreadPoolExecutor(4), options=unbounded)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Prediction(), server)
    model_service_pb2_grpc.add_ModelServiceServicer_to_server(Model(), server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    sys.exit(main())
