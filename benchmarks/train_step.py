"""One training step of the paper's body, text to text, through the public API and Keras' own `fit`.

Prints one JSON line: seconds to the first step, with building and compiling the model; the median milliseconds of a
step; tokens a second, inputs and targets; counted GFLOP; and the rate of a matrix product in the same process.

    python benchmarks/train_step.py --dim 256 --experts 16 --batch 16 --inputs 64 --targets 64 --precision float32
"""

import itertools
import os
import time

import workload


def text_signature(options):
    """A task from text to text."""
    from multimodel import Signature

    return Signature(
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


def nets(options):
    """The text nets of that task."""
    from modality_nets import TextInputNet, TextOutputNet

    return {
        "text_input": TextInputNet(options.vocab, options.dim),
        "text_output": TextOutputNet(options.vocab, options.dim),
    }


def compiled_model(options):
    """The paper's depths between text nets, ready for `fit`."""
    from multimodel import Body, MultiModel
    from multimodel.backend import compile_for_backend
    from multimodel.training.adam import Adam
    from multimodel.training.losses import SmoothedCrossEntropy

    body = Body.stacked(options.dim, (6, 2, 4), options.experts, min(options.k, options.experts), dropout=0.1)
    model = MultiModel([text_signature(options)], body, nets(options))
    model.build()
    optimizer = Adam(1e-3, global_clipnorm=2.0, lazy_experts=options.lazy_experts)
    compile_for_backend(model, optimizer=optimizer, loss={"text": SmoothedCrossEntropy(0.1)}, xla=options.xla)
    optimizer.build(model.trainable_variables)
    return model


def endless_batch(options):
    """A tf.data.Dataset that gives one random batch again and again."""
    import numpy as np
    import tensorflow as tf

    inputs, targets = (
        np.random.randint(2, options.vocab, (options.batch, length)).astype("int32")
        for length in (options.inputs, options.targets)
    )
    batch = {"text": {"inputs": inputs, "targets": targets}}, {"text": targets}
    return tf.data.Dataset.from_tensors(batch).repeat()


def step_ends(model, batches, steps):
    """Runs `fit` and returns when each step ended."""
    import keras

    ends = []
    clock = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda step, logs: ends.append((float(logs["loss"]), time.perf_counter())[1])
    )
    model.fit(batches, steps_per_epoch=steps, verbose=0, callbacks=[clock])
    return ends


def multiplication(dtype):
    """A product of two square matrices on this backend, to be called and timed."""
    import keras
    from keras import ops

    matrix = ops.cast(keras.random.normal((workload.MATRIX, workload.MATRIX)), dtype)
    multiply = ops.matmul
    if keras.backend.backend() == "jax":
        import jax

        multiply = jax.jit(multiply)
    return lambda: ops.convert_to_numpy(multiply(matrix, matrix)[:1, :1])


def parse():
    parser = workload.parser(__doc__.partition("\n")[0])
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--backend", choices=("tensorflow", "jax"), default="tensorflow")
    parser.add_argument("--xla", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--lazy_experts", action="store_true", help="leave experts without a token alone")
    return parser.parse_args()


def main():
    options = parse()
    os.environ["KERAS_BACKEND"] = options.backend
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    keras.config.set_dtype_policy(options.precision)
    keras.utils.set_random_seed(0)
    batches = endless_batch(options)
    start = time.perf_counter()
    model = compiled_model(options)
    first, *later = step_ends(model, batches, options.steps + 2)
    dtype = keras.config.dtype_policy().compute_dtype
    workload.print_line(
        f"multimodel {options.backend}",
        dtype,
        model.count_params(),
        first - start,
        [end - begin for begin, end in itertools.pairwise(later)],
        workload.matrix_gflops(multiplication(dtype)),
        options,
    )


if __name__ == "__main__":
    main()
