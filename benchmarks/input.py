"""How fast the quickstart's batches come, against how fast training takes them.

Prints one JSON line: batches a second from the pipeline alone and in training, and the wall time of `fit` against the
sum of its steps.

    python benchmarks/input.py
"""

import argparse
import json
import time

from quickstart_steps import Trained, median_seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--precision", choices=("float32", "mixed_bfloat16"), default="float32")
    options = parser.parse_args()
    trained = Trained(precision=options.precision)
    start = time.perf_counter()
    for _ in trained.batches.dataset().take(200):
        pass
    alone = 200 / (time.perf_counter() - start)
    start = time.perf_counter()
    steps = trained.fit(options.steps)
    wall = time.perf_counter() - start
    step = median_seconds(steps[1:])
    line = {
        "what": "quickstart",
        "batches_per_s_alone": round(alone, 1),
        "batches_per_s_in_training": round(1 / step, 2),
        "times_faster": round(alone * step, 1),
        "fit_s": round(wall, 1),
        "sum_of_steps_s": round(sum(end - begin for begin, end in steps), 1),
        "first_step_s": round(steps[0][1] - steps[0][0], 1),
        "step_ms": round(step * 1e3, 1),
    }
    line["fit_to_steps"] = round(line["fit_s"] / line["sum_of_steps_s"], 3)
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
