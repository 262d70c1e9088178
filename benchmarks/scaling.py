"""What a step costs: six tasks in one step against six steps of one task each, and against the length of text.

Prints one JSON line for each measurement; all models live in one process and take turns.

    python benchmarks/scaling.py
"""

import argparse
import json
import statistics

from quickstart_steps import Trained, median_seconds

LENGTHS = (32, 64, 128, 256)


def joint_against_single(rounds, steps):
    """Seconds of a step of all tasks, and the sum of the seconds of one step of each."""
    from multimodel.shipped import load_recipe

    names = list(load_recipe("quickstart").mixture.tasks)
    models = {"joint": Trained()} | {name: Trained([name]) for name in names}
    for model in models.values():
        model.fit(2)
    times = {name: [] for name in models}
    for _ in range(rounds):
        for name, model in models.items():
            times[name].append(median_seconds(model.fit(steps)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    return medians.pop("joint"), medians


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="of each model in a round")
    options = parser.parse_args()
    joint, single = joint_against_single(options.rounds, options.steps)
    line = {
        "what": "six tasks",
        "joint_ms": round(joint * 1e3, 1),
        "sum_of_single_ms": round(sum(single.values()) * 1e3, 1),
    }
    line["ratio"] = round(joint / sum(single.values()), 3)
    line["single_ms"] = {name: round(seconds * 1e3, 1) for name, seconds in single.items()}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
