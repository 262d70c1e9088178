"""The paper's model at its full width: one forward pass and one step of plain SGD over all modalities.

Prints one JSON line with parameters, losses on the same batch before and after the step, seconds, and peak memory.

    python -m tests.full_width
"""

import json
import resource
import sys
import time

import keras
import numpy as np

from multimodel.signature import Signature
from multimodel.tasks.batches import weights_of
from multimodel.training.build import build_model
from recipes import paper

ROWS = 1


def batch_of(recipe):
    """`(x, y, w)` of a row of each task: noise in, noise out, 80 positions in (as 2 s of sound has) and 16 out."""
    random = np.random.default_rng(0)
    x, y, w = {}, {}, {}
    for name, task in recipe.mixture.tasks.items():
        signature: Signature = task.signature()
        shape = (ROWS, 80) if signature.input_modality == "text" else (ROWS, *signature.input_shape)
        if signature.input_modality == "audio":
            inputs = (3000 * random.normal(size=shape)).astype("int16")
        else:
            limit = 256 if signature.input_modality == "image" else signature.num_classes
            inputs = random.integers(2, limit, shape).astype(signature.input_dtype)
        x[name] = {"inputs": inputs}
        label = signature.target_modality == "label"
        y[name] = random.integers(2, signature.num_classes, (ROWS, 1 if label else 16)).astype("int32")
        if not label:
            x[name]["targets"] = y[name]
        w[name] = weights_of(task, y[name])
    return x, y, w


def main():
    start = time.monotonic()
    paper.SECONDS = 2
    recipe = paper.recipe()
    model = build_model(recipe)
    model.compile(
        keras.optimizers.SGD(1e-2),
        loss={
            task: keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
            for task in model.signatures
        },
        run_eagerly=False,
    )
    x, y, w = batch_of(recipe)
    before = model.test_on_batch(x, y, w, return_dict=True)["loss"]
    model.train_on_batch(x, y, w)
    after = model.test_on_batch(x, y, w, return_dict=True)["loss"]
    unit = 1024**3 if sys.platform == "darwin" else 1024**2
    record = {
        "parameters": model.count_params(),
        "loss_before": round(float(before), 4),
        "loss_after": round(float(after), 4),
        "seconds": round(time.monotonic() - start),
        "peak_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 2),
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
