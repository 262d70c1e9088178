"""Warm-up requests: TF Serving, and `multimodel serve`, answer them before they take others."""

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2


def write_warmup_requests(folder, name, contents):
    """Writes `assets.extra/tf_serving_warmup_requests`, one request of one row for each task.

    Args:
        folder: of a SavedModel.
        name: the model's, as it is served.
        contents: `{task: bytes}`, a raw input of each.
    """
    file = folder / "assets.extra" / "tf_serving_warmup_requests"
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as records:
        for task, content in contents.items():
            log = prediction_log_pb2.PredictionLog()
            request = log.predict_log.request
            request.model_spec.name, request.model_spec.signature_name = name, task
            request.inputs["inputs"].CopyFrom(tf.make_tensor_proto([content], tf.string))
            records.write(log.SerializeToString())
