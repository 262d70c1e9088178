"""What a client of a loaded run waits: predictions from files and strings, one at a time and 32 at a time.

In this process; there is no server yet. Needs a run of the quickstart. Prints one JSON line for each task and size.

    python benchmarks/serve.py runs/quickstart
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
INPUTS = {"numbers_en_de": "four thousand and two", "numbers_de_en": "achtundneunzig", "python_ast": "x = y + 1"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", help="the folder of a run of the quickstart")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    import multimodel

    try:
        model = multimodel.load(options.run)
    except multimodel.UserError as error:
        parser.error(str(error))
    files = dict.fromkeys(("animals", "captions"), f"{options.run}/examples/scene.png")
    files["speech"] = f"{options.run}/examples/clip.wav"
    for task in model.tasks:
        for size in (1, 32):
            inputs = [(files | INPUTS)[task]] * size
            times = []
            for _ in range(options.rounds + 1):
                start = time.perf_counter()
                model.predict(task, inputs)
                times.append((time.perf_counter() - start) * 1e3)
            line = {
                "what": "predict",
                "task": task,
                "inputs": size,
                "p50_ms": round(statistics.median(times[1:]), 1),
                "p99_ms": round(sorted(times[1:])[int(0.99 * options.rounds)], 1),
                "inputs_per_s": round(size / statistics.median(times[1:]) * 1e3, 1),
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
