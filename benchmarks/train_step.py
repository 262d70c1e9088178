"""One training step of the paper's body, text to text, through the public API and Keras' own `train_on_batch`.

Prints one JSON line: seconds to the first step, median milliseconds of a step, tokens a second (inputs and targets).

    python benchmarks/train_step.py --dim 256 --experts 16 --batch 16 --inputs 64 --targets 64
"""

import argparse
import json
import statistics
import time

import keras
import numpy as np

from modality_nets import TextInputNet, TextOutputNet
from multimodel import Body, MultiModel, Signature
from multimodel.backend import compile_for_backend

OPTIONS = {"dim": 256, "experts": 16, "k": 4, "batch": 16, "inputs": 64, "targets": 64, "vocab": 8192, "steps": 8}


def build(options):
    """The compiled model of one text task."""
    signature = Signature(
        task="text",
        input_modality="text",
        input_shape=(options.inputs,),
        input_dtype="int32",
        input_net="text_input",
        target_modality="text",
        target_length=options.targets,
        num_classes=options.vocab,
        output_net="text_output",
        command="text",
    )
    body = Body.stacked(options.dim, (6, 2, 4), options.experts, min(options.k, options.experts), dropout=0.1)
    nets = {
        "text_input": TextInputNet(options.vocab, options.dim),
        "text_output": TextOutputNet(options.vocab, options.dim),
    }
    model = MultiModel([signature], body, nets)
    model.build()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    compile_for_backend(model, optimizer=keras.optimizers.Adam(1e-3, global_clipnorm=2.0), loss={"text": loss})
    model.optimizer.build(model.trainable_variables)
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, value in OPTIONS.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    options = parser.parse_args()
    keras.config.set_dtype_policy(options.precision)
    keras.utils.set_random_seed(0)
    model = build(options)
    inputs, targets = (
        np.random.randint(2, options.vocab, (options.batch, length)).astype("int32")
        for length in (options.inputs, options.targets)
    )
    batch = {"text": {"inputs": inputs, "targets": targets}}, {"text": targets}
    times = []
    for _ in range(options.steps + 2):
        start = time.perf_counter()
        model.train_on_batch(*batch)
        times.append(time.perf_counter() - start)
    seconds = statistics.median(times[2:])
    record = {
        "peer": f"multimodel {keras.backend.backend()}",
        "dtype": options.precision,
        "parameters": model.count_params(),
        "first_step_s": round(times[0], 1),
        "step_ms": round(seconds * 1e3, 1),
        "tokens_per_s": round(options.batch * (options.inputs + options.targets) / seconds),
    }
    print(json.dumps(record))


if __name__ == "__main__":
    main()
