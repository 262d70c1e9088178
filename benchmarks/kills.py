"""Kills a run at random moments, resumes it each time, and compares it with one that nobody killed.

    python benchmarks/kills.py --recipe quickstart --steps 60 --save-every 5 --kills 20

prints one JSON line: how many kills struck, how many of them while a checkpoint was written, and whether the last
state (weights, moments, random seeds, means of losses), the saved model and the history are equal, bit for bit. Every
second kill waits for a checkpoint to be under way. What the history says of time and memory is not compared.
"""

import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipe", default="quickstart")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--within", type=float, default=15, help="seconds of training in which a kill strikes")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    options = parser.parse_args()
    moments = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole, killed = pathlib.Path(folder, "whole"), pathlib.Path(folder, "killed")
        started = time.monotonic()
        assert train(options, whole).wait() == 0
        struck = []
        while len(struck) < options.kills:
            writing = len(struck) % 2 == 1
            hit = kill(train(options, killed), killed, moments.uniform(0, options.within), writing)
            if hit is None:  # it ended before; there is nothing left to kill
                break
            struck.append(hit)
        code = train(options, killed).wait()
        result = {"benchmark": "kills", "recipe": options.recipe, "steps": options.steps, "kills": len(struck)}
        result |= {"while_writing": sum(struck), "exit_code": code} | compare(whole, killed)
        print(json.dumps(result | {"minutes": round((time.monotonic() - started) / 60, 1)}))


def train(options, out):
    """The process of a run that is started, or goes on."""
    command = [sys.executable, "-m", "multimodel", "train", options.recipe, "--out", str(out), "--resume"]
    flags = {"--steps": options.steps, "--save-every": options.save_every, "--log-every": 4}
    command += [str(part) for flag in flags.items() for part in flag]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill(process, out, delay, writing):
    """Kills a run `delay` seconds after it has begun to train, or in the first checkpoint after that.

    Returns:
        Whether a checkpoint was being written, or None if the run had ended by itself.
    """
    draft, begin = out / "checkpoints" / ".draft.npz", time.time()
    while process.poll() is None and not _touched_since(out / "run.json", begin):
        time.sleep(0.01)
    moment = time.monotonic() + delay
    while process.poll() is None and (time.monotonic() < moment or (writing and not _touched_since(draft, begin))):
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    return None if process.wait() == 0 else _touched_since(draft, begin)  # not one of an earlier kill


def _touched_since(file, begin):
    try:
        return file.stat().st_mtime > begin
    except FileNotFoundError:
        return False


def compare(one, other):
    """Whether two finished runs are equal: `{"state", "model", "history"}`."""
    states = [np.load(max((run / "checkpoints").glob("step-*.npz"))) for run in (one, other)]
    names = [set(state.files) - {"progress"} for state in states]
    state = names[0] == names[1] and all(np.array_equal(states[0][name], states[1][name]) for name in names[0])
    models = [_weights(run / "model" / "model.weights.h5") for run in (one, other)]
    model = models[0].keys() == models[1].keys() and all(np.array_equal(models[0][n], models[1][n]) for n in models[0])
    histories = [[_lasting(line) for line in (run / "history.jsonl").read_text().splitlines()] for run in (one, other)]
    return {"state": state, "model": model, "history": histories[0] == histories[1]}


def _weights(file):
    arrays = {}
    with h5py.File(file) as weights:
        weights.visititems(lambda name, item: arrays.update({name: item[()]}) if hasattr(item, "shape") else None)
    return arrays


def _lasting(line):
    timed = ("seconds", "steps_per_second", "memory_mb")
    return {name: value for name, value in json.loads(line).items() if name not in timed}


if __name__ == "__main__":
    main()
