"""A layer of experts against a dense layer of equal arithmetic, forward and backward.

The dense layer is as wide inside as the k experts of a position together, and has the same norm and residual. The two
take turns in one process; prints one JSON line for each size.

    python benchmarks/experts.py --precision mixed_bfloat16
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
SIZES = (  # dim, experts, positions
    (256, 16, 1024),
    (512, 16, 1024),
    (1024, 16, 1024),
    (256, 240, 1024),
)
TOP_K = 4


def layers(dim, experts):
    """The two layers, `(1, n, dim)` -> `(1, n, dim)`."""
    import keras

    from multimodel.body import MoEBlock
    from multimodel.body.norm import LayerNorm

    words = keras.Input((None, dim))
    hidden = keras.layers.Dense(TOP_K * dim, "relu", use_bias=False)(words)
    dense = LayerNorm()(words + keras.layers.Dense(dim, use_bias=False)(hidden))
    return MoEBlock(dim, experts, TOP_K), keras.Model(words, dense)


def gradients_of(layer, x):
    """A compiled call that computes all gradients of the layer; call it to wait for them."""
    import keras
    from keras import ops

    def loss(x):
        y = layer(x, training=True)
        return ops.sum(ops.square(ops.cast(y, "float32"))) + sum(layer.losses)

    layer(x)
    if keras.backend.backend() == "jax":
        import jax

        def stateless(values, x):
            mapping = list(zip(layer.trainable_variables, values, strict=True))
            with keras.StatelessScope(state_mapping=mapping):
                return loss(x)

        run = jax.jit(jax.grad(stateless, argnums=(0, 1)))
        return lambda: jax.block_until_ready(run([variable.value for variable in layer.trainable_variables], x))
    import tensorflow as tf

    weights = [variable.value for variable in layer.trainable_variables]

    @tf.function
    def run():
        with tf.GradientTape() as tape:
            tape.watch(x)
            value = loss(x)
        return [tf.convert_to_tensor(gradient) for gradient in tape.gradient(value, [x, *weights])]

    return run


def measure(dim, experts, positions, rounds):
    import keras
    from keras import ops

    x = ops.cast(keras.random.normal((1, positions, dim)), keras.config.dtype_policy().compute_dtype)
    runs = [gradients_of(layer, x) for layer in layers(dim, experts)]
    times = [[], []]
    for _ in range(rounds + 3):
        for run, seconds in zip(runs, times, strict=True):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds[3:]) for seconds in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--backend", choices=("tensorflow", "jax"), default="tensorflow")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    os.environ["KERAS_BACKEND"] = options.backend
    import keras

    keras.config.set_dtype_policy(options.precision)
    for dim, experts, positions in SIZES:
        moe, dense = measure(dim, experts, positions, options.rounds)
        line = {
            "what": "experts",
            "backend": options.backend,
            "dtype": options.precision,
            "dim": dim,
            "experts": experts,
            "positions": positions,
            "moe_ms": round(moe * 1e3, 1),
            "dense_ms": round(dense * 1e3, 1),
            "ratio": round(moe / dense, 2),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
