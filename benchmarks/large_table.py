"""Memory and speed over a large table of pictures: encoded once, then read batch by batch.

Makes the files, encodes them into a cache of its own, and takes batches; prints one JSON line with the memory of the
process (resident, in MB) after importing, after encoding and after each quarter of two epochs.

    python benchmarks/large_table.py
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=64, help="height and width of a picture")
    parser.add_argument("--batch", type=int, default=128)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MULTIMODEL_CACHE"] = str(pathlib.Path(folder, "cache"))
        print(json.dumps({"what": "large table", "rows": options.rows} | measure(pathlib.Path(folder), options)))


def measure(folder, options):
    import psutil

    from multimodel import Task, Vocabulary
    from multimodel.tasks import Image, JsonlSource, Text
    from multimodel.tasks.batches import MixedBatches
    from multimodel.tasks.encoded import training_examples

    make_table(folder, options)
    words = Vocabulary(320)
    words.train([f"picture number {i}" for i in range(1000)])
    source = JsonlSource(folder / "rows.jsonl", held_out={})
    task = Task("pictures", source, Image("image", options.size, options.size), Text("text", words, 12))
    memory = [psutil.Process().memory_info().rss >> 20]
    start = time.perf_counter()
    examples = training_examples(task)
    encoding = time.perf_counter() - start
    memory.append(psutil.Process().memory_info().rss >> 20)
    start = time.perf_counter()
    training_examples(task)
    opening = time.perf_counter() - start
    steps = 2 * options.rows // options.batch
    batches = MixedBatches({"pictures": task}, {"pictures": examples}, {"pictures": options.batch}, steps, seed=1)
    start = time.perf_counter()
    for step in range(steps):
        batches[step]
        if step % max(1, steps // 8) == steps // 8 - 1:
            memory.append(psutil.Process().memory_info().rss >> 20)
    return {
        "encoded_per_s": round(options.rows / encoding),
        "opened_again_s": round(opening, 2),
        "examples_per_s": round(steps * options.batch / (time.perf_counter() - start)),
        "encoded_mb": sum(file.stat().st_size for file in folder.rglob("*.npy")) >> 20,
        "memory_mb": memory,
    }


def make_table(folder, options):
    """PNG files in folders of a thousand, and the JSON lines that name them."""
    import numpy as np
    import PIL.Image

    random = np.random.default_rng(0)
    with (folder / "rows.jsonl").open("w") as lines:
        for row in range(options.rows):
            path = folder / str(row // 1000) / f"{row}.png"
            path.parent.mkdir(exist_ok=True)
            picture = PIL.Image.fromarray(random.integers(0, 256, (8, 8, 3), "uint8"))
            picture.resize((80, 80)).save(path, compress_level=1)
            name = str(path.relative_to(folder))
            lines.write(json.dumps({"image": name, "text": f"picture number {row}"}) + "\n")


if __name__ == "__main__":
    main()
