"""Examples of what a trained model writes, right and wrong, kept beside a run's scores."""

import functools
import json
import shutil

import keras
import matplotlib
import numpy as np
import PIL.Image
import soundfile

from modality_nets.mel import MelFrames
from multimodel.backend import predict_in_chunks
from multimodel.generation.alignment import Alignment, aligns
from multimodel.tasks.batches import features_of
from multimodel.tasks.examples import LeftOutError, folder_of, raw_examples, read_field, read_row

OF_EACH_KIND = 4  # right ones, and wrong ones
LARGEST = 128  # pixels of a picture's longer side


def write_samples(bundle, tasks, folder):
    """Writes `samples/TASK.jsonl` into a run's folder, and pictures and clips beside it.

    A line is an object with `input` (text, or the row's name), `target`, `output`, `score` and `right`; with `picture`,
    `clip` and `spectrogram`, names of files or null; and with `attention`, null or
    `{"pieces" (m), "sources" (n), "grid", "weights" (m, n)}`: how much the last attention of the decoder, heads
    averaged, looked at each source position while it wrote each piece. `grid` is `[rows, columns]` of a picture's
    positions, else null.

    Args:
        bundle: a Bundle.
        tasks: `{name: Task}`.
        folder: of a run, with `predictions/` as `evaluate` writes them. Tasks without predictions are passed over.

    Raises:
        OSError: if the folder cannot be written.
    """
    samples = folder / "samples"
    shutil.rmtree(samples, ignore_errors=True)
    samples.mkdir()
    for name, task in tasks.items():
        predictions = folder / "predictions" / f"{name}.jsonl"
        if predictions.is_file():
            records = _write_inputs(task, choose(predictions), samples)
            _add_attention(bundle, name, records)
            lines = [json.dumps(record, ensure_ascii=False) + "\n" for record, _ in records]
            (samples / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def choose(predictions):
    """A few of a file of predictions, wrong ones first, evenly spread over each kind.

    Args:
        predictions: a `TASK.jsonl` file.

    Returns:
        A list of its objects, with `right` added.
    """
    kinds: dict[bool, list] = {False: [], True: []}
    with predictions.open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            right = record["output"] == record["target"]
            kinds[right].append(record | {"right": right})
    chosen = []
    for records in kinds.values():
        count = min(OF_EACH_KIND, len(records))
        chosen += [records[i] for i in np.linspace(0, len(records) - 1, count).astype(int)]
    return chosen


def _write_inputs(task, records, samples):
    """`[(record with its files, canonical input)]`; an input that can no longer be read is passed over."""
    written = []
    examples_of = functools.cache(lambda split: raw_examples(task, split))
    for number, record in enumerate(records, 1):
        try:
            value = _read_input(task, record["input"], examples_of)
        except LeftOutError:
            continue
        files: dict[str, str | None] = dict.fromkeys(("picture", "clip", "spectrogram"))
        if task.inputs.modality == "image":
            files["picture"] = _write_picture(value, samples / f"{task.name}-{number}.png")
        if task.inputs.modality == "audio":
            rate, value = task.inputs.sample_rate, value[: task.inputs.shape[0]]
            files["clip"] = _write_clip(value, rate, samples / f"{task.name}-{number}.wav")
            files["spectrogram"] = _write_spectrogram(value, rate, samples / f"{task.name}-{number}.png")
        written.append((record | files, value))
    return written


def _read_input(task, shown, examples_of):
    """The canonical input of a prediction: its text, or what its name `SPLIT[ROW]` leads to."""
    if task.inputs.modality == "text":
        return shown
    split, _, row = shown.removesuffix("]").rpartition("[")
    example = read_row(examples_of(split), split, int(row))
    return read_field(task.inputs, example, int(row), shown, folder_of(task.source))


def _write_picture(pixels, file):
    picture = PIL.Image.fromarray(pixels)
    picture.thumbnail((LARGEST, LARGEST))  # which leaves smaller ones as they are
    picture.save(file)
    return file.name


def _write_clip(samples, rate, file):
    soundfile.write(file, samples, rate, subtype="PCM_16")
    return file.name


def _write_spectrogram(samples, rate, file):
    """Log-mel frames from left to right, low frequencies at the bottom: 64 bins, a column for each 10 ms."""
    waveform = samples[None].astype("float32")
    power, _ = MelFrames(rate, 64, 0.025, 0.01)(waveform, np.ones(waveform.shape, bool))
    decibels = 10 * np.log10(keras.ops.convert_to_numpy(power)[0].T[::-1] + 1e-6)
    loudness = np.clip((decibels - decibels.max()) / 60 + 1, 0, 1)  # what is 60 dB below the loudest is dark
    colours = matplotlib.colormaps["magma"](loudness, bytes=True)[..., :3]
    PIL.Image.fromarray(colours).save(file)
    return file.name


def _add_attention(bundle, task, records):
    """Adds `attention` to the record of each `(record, canonical input)`."""
    for record, _ in records:
        record["attention"] = None
    if not records or not aligns(bundle.model, task):
        return
    inputs, lengths = map(_array, bundle.inputs[task].encode([value for _, value in records]))
    targets = bundle.generate(task, inputs, lengths)[0][:, 0]
    features = features_of(inputs, lengths) | {"targets": targets}
    looked = predict_in_chunks(Alignment(bundle.model, task), features)
    for row, (record, _) in enumerate(records):
        written = targets[row][targets[row] != 0]
        real = np.flatnonzero(looked["mask"][row])
        weights = looked["weights"][row][: len(written), real]
        record["attention"] = {
            "pieces": bundle.targets[task].vocabulary.pieces(written),
            **_sources(bundle, task, inputs[row], looked["mask"].shape[1], real),
            "weights": np.round(weights.astype(float), 4).tolist(),
        }


def _array(values):
    return None if values is None else np.asarray(values)


def _sources(bundle, task, inputs, positions, real):
    """`{"sources": names, "grid"}` of the real ones among the source positions of one encoded input."""
    feature, net = bundle.inputs[task], bundle.model.input_net(task)
    if feature.modality == "text" and positions == len(inputs):
        return {"sources": feature.vocabulary.pieces(inputs[real]), "grid": None}
    if feature.modality == "image" and net.grid(feature.shape):
        rows, columns = net.grid(feature.shape)
        return {"sources": [f"{i // columns + 1}, {i % columns + 1}" for i in real], "grid": [rows, columns]}
    if feature.modality == "audio":
        seconds = feature.shape[0] / feature.sample_rate / positions
        return {"sources": [f"{i * seconds:.2f} s" for i in real], "grid": None}
    return {"sources": [str(i + 1) for i in real], "grid": None}
