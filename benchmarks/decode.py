"""Greedy generation: time per token against the length of the output, and against the rows of a batch.

A model of random weights that never writes the end, so that every row has the whole length. Prints one JSON line for
each length and batch, then the ratios.

    python benchmarks/decode.py
"""

import argparse
import json
import os
import statistics
import time

import workload

LENGTHS, BATCHES = (32, 256), (1, 32)


def generator(options, length):
    """A Generator of outputs of that length."""
    import keras
    from train_step import nets, text_signature

    from multimodel import Body, MultiModel
    from multimodel.generation.generator import Generator

    keras.utils.set_random_seed(0)
    options.targets = length
    body = Body.stacked(options.dim, (3, 1, 2), options.experts, 2, dropout=0.0)
    model = MultiModel([text_signature(options)], body, nets(options))
    model.build()
    return Generator(model, "text")


def seconds_of(generate, features, rounds):
    """The median of a call, after one that compiles."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        ids = generate.predict_on_batch(features)["ids"]
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]), ids


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", choices=("tensorflow", "jax"), default="tensorflow")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    os.environ["KERAS_BACKEND"] = options.backend
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import numpy as np

    options = argparse.Namespace(**workload.OPTIONS | {"dim": 128, "experts": 4, "vocab": 1000} | vars(options))
    per_token = {}
    for length in LENGTHS:
        generate = generator(options, length)
        for batch in BATCHES:
            features = {"inputs": np.random.randint(2, options.vocab, (batch, options.inputs)).astype("int32")}
            seconds, ids = seconds_of(generate, features, options.rounds)
            written = int((ids[:, 0] != 0).sum(axis=1).max())
            per_token[length, batch] = seconds / written
            line = {
                "what": "decode",
                "backend": options.backend,
                "parameters": generate.model.count_params(),
                "batch": batch,
                "length": written,
                "ms_per_position": round(seconds / written * 1e3, 2),
                "tokens_per_s": round(batch * written / seconds),
            }
            print(json.dumps(line), flush=True)
    short, long = LENGTHS
    one, many = BATCHES
    line = {
        "what": "decode ratios",
        f"{long}_to_{short}_tokens": round(per_token[long, many] / per_token[short, many], 2),
        f"throughput_{many}_to_{one}": round(many * per_token[short, one] / per_token[short, many], 1),
    }
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
