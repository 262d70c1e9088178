"""Seconds from nothing to the end of the first step: building, compiling, tracing and running it.

Prints one JSON line for the text model of `train_step.py` and one for the quickstart, with what `fit` took of it.

    python benchmarks/first_step.py --precision mixed_bfloat16
"""

import argparse
import json
import os
import time

import train_step
import workload


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    parser.add_argument("--backend", choices=("tensorflow", "jax"), default="tensorflow")
    parser.add_argument("--experts", type=int, default=workload.OPTIONS["experts"])
    options = parser.parse_args()
    os.environ["KERAS_BACKEND"] = options.backend
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras
    from quickstart_steps import Trained

    text = argparse.Namespace(**workload.OPTIONS | {"experts": options.experts}, lazy_experts=False, xla="auto")

    def text_model():
        keras.config.set_dtype_policy(options.precision)
        model, batches = train_step.compiled_model(text), train_step.endless_batch(text)
        keras.config.set_dtype_policy("float32")
        return lambda: train_step.step_ends(model, batches, 1)

    def quickstart():
        model = Trained(precision=options.precision)
        return lambda: model.fit(1)

    for what, prepare in (("text", text_model), ("quickstart", quickstart)):
        start = time.perf_counter()
        first_step = prepare()
        ready = time.perf_counter()
        first_step()
        end = time.perf_counter()
        line = {
            "what": what,
            "backend": options.backend,
            "dtype": options.precision,
            "prepare_s": round(ready - start, 1),
            "fit_one_step_s": round(end - ready, 1),
            "first_step_s": round(end - start, 1),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
