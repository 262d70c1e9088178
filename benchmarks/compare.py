"""A small set of every benchmark beside its rival: runs take turns, and ratios of medians are printed.

The rival needs an interpreter with torch, which `make bench` sets up. What it has compiled before is not there in the
first round, and is in the others. Each line of each run goes to stderr as it comes, and a table to stdout at the end.

    python benchmarks/compare.py --torch .venv-torch/bin/python
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def run(python, script, *arguments):
    """The JSON lines that a benchmark prints."""
    command = [python, str(HERE / script), *arguments]
    output = subprocess.run(command, capture_output=True, text=True)
    if output.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{output.stderr[-2000:]}")
    lines = [json.loads(line) for line in output.stdout.splitlines() if line.startswith("{")]
    for line in lines:
        print(json.dumps(line), file=sys.stderr, flush=True)
    return lines


def in_turns(rounds, contestants):
    """`{name: (python, script, arguments)}` -> `{name: [line of each round]}`, the contestants taking turns."""
    lines = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, (python, script, *arguments) in contestants.items():
            lines[name] += run(python, script, *arguments)
    return lines


def median(lines, key):
    return statistics.median(line[key] for line in lines)


def training_steps(torch, experts, rounds):
    """Ratios of a training step against the rival, and our milliseconds."""
    size = ("--experts", str(experts))
    ours, theirs = (sys.executable, "train_step.py", *size), (torch, "torch_train_step.py", *size)
    lines = in_turns(
        rounds,
        {
            "ours float32": ours,
            "ours bfloat16": (*ours, "--precision", "mixed_bfloat16"),
            "torch float32": theirs,
            "torch bfloat16": (*theirs, "--bf16"),
            "torch float32 compiled": (*theirs, "--compile"),
            "torch bfloat16 compiled": (*theirs, "--bf16", "--compile"),
        },
    )
    rates = {name: median(measured, "tokens_per_s") for name, measured in lines.items()}
    first = {name: max(line["first_step_s"] for line in measured) for name, measured in lines.items()}
    our_best, their_best = (max((n for n in rates if n.startswith(who)), key=rates.get) for who in ("ours", "torch"))
    compiled = min((name for name in first if name.endswith("compiled")), key=first.get)
    rows = [
        (
            f"tokens/s, {experts} experts: {our_best} against {their_best}",
            f"{rates[our_best]:.0f} / {rates[their_best]:.0f}",
            rates[our_best] / rates[their_best],
        ),
        (
            f"seconds to the first step, {experts} experts: {our_best} against {compiled}",
            f"{first[our_best]:.1f} / {first[compiled]:.1f}",
            first[our_best] / first[compiled],
        ),
    ]
    return rows, median(lines[our_best], "step_ms")


def expert_layers():
    rows = []
    for precision in ("float32", "mixed_bfloat16"):
        for line in run(sys.executable, "experts.py", "--precision", precision):
            what = f"a layer of {line['experts']} experts against a dense one, {line['dim']} channels, {precision}"
            rows.append((what, f"{line['moe_ms']} / {line['dense_ms']} ms", line["ratio"]))
    return rows


def quickstart():
    (fed,), (joint,) = run(sys.executable, "input.py"), run(sys.executable, "scaling.py")
    return [
        ("quickstart: `fit` against its steps", f"{fed['fit_s']} / {fed['sum_of_steps_s']} s", fed["fit_to_steps"]),
        (
            "quickstart: batches a second, pipeline alone against training",
            f"{fed['batches_per_s_alone']} / {fed['batches_per_s_in_training']}",
            fed["times_faster"],
        ),
        (
            "quickstart: six tasks in one step against six steps of one",
            f"{joint['joint_ms']} / {joint['sum_of_single_ms']} ms",
            joint["ratio"],
        ),
    ]


def decoding(torch):
    """Our ratios, and milliseconds of a position against those of a T5 with as many parameters."""
    *ours, ratios = run(sys.executable, "decode.py")
    theirs = run(torch, "torch_decode.py", "--parameters", str(ours[0]["parameters"]))
    rows = [(f"decoding: {name}", "", value) for name, value in ratios.items() if name != "what"]
    for our, their in zip(ours, theirs, strict=True):
        mine, rival = our["ms_per_position"], their["ms_per_position"]
        what = f"decoding {our['length']} tokens, batch {our['batch']}: milliseconds a position, ours against T5's"
        rows.append((what, f"{mine} / {rival}", mine / rival))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--torch", required=True, help="a Python that has torch")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if not shutil.which(options.torch):
        parser.error(f"The rival needs a Python with torch. Received: --torch {options.torch}. `make bench` makes one.")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        compare(options)


def compare(options):
    few, few_ms = training_steps(options.torch, 16, options.rounds)
    many, many_ms = training_steps(options.torch, 240, options.rounds)
    flat = ("a step with 240 experts against one with 16", f"{many_ms} / {few_ms} ms", many_ms / few_ms)
    print("| what | measured | ratio |\n|---|---|---|")
    for what, measured, ratio in [*few, *many, flat, *expert_layers(), *quickstart(), *decoding(options.torch)]:
        print(f"| {what} | {measured} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
