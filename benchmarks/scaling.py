"""What a step costs: the quickstart's tasks in one step against as many steps of one task each.

Each task has the same share of a step in both. All models live in one process and take turns; prints one JSON line.

    python benchmarks/scaling.py
"""

import argparse
import json
import statistics

from quickstart_steps import Trained, median_seconds

TASKS = "animals,captions,speech,numbers_en_de,numbers_de_en,python_ast"


def joint_against_single(names, rounds, steps):
    """Seconds of a step of all tasks, and `{task: seconds}` of one of each."""
    models = {"joint": Trained(names)} | {name: Trained([name]) for name in names}
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
    parser.add_argument("--tasks", default=TASKS, help="names, with commas")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5, help="of each model in a round")
    options = parser.parse_args()
    joint, single = joint_against_single(options.tasks.split(","), options.rounds, options.steps)
    line = {
        "what": "joint step",
        "joint_ms": round(joint * 1e3, 1),
        "sum_of_single_ms": round(sum(single.values()) * 1e3, 1),
    }
    line["ratio"] = round(joint / sum(single.values()), 3)
    line["single_ms"] = {name: round(seconds * 1e3, 1) for name, seconds in single.items()}
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
