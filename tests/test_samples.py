"""Examples that a run keeps: which ones, their files, where the decoder looked, and what TensorBoard reads of them."""

import collections
import dataclasses
import importlib
import json
import types

import numpy as np
import PIL.Image
import pytest
import soundfile
import tensorflow as tf

from modality_nets import AudioInputNet
from multimodel import Body, Bundle, Mixture, Task
from multimodel.body import AttentionBlock, ConvBlock
from multimodel.tasks import ArraySource, Audio, Text
from multimodel.tasks.examples import train_vocabularies
from multimodel.training.build import build_model
from multimodel.training.run import Run
from multimodel.training.samples import choose, write_samples
from multimodel.training.tensorboard_samples import write_tensorboard_samples
from tests import tiny_recipe

RATE = 8000


def tones(count):
    """Clips of 0.1 to 0.3 s at 1000 Hz, a quarter of the highest frequency."""
    lengths = np.linspace(0.1, 0.3, count) * RATE
    clips = [(0.5 * np.sin(2 * np.pi * 1000 * np.arange(length) / RATE)).astype("float32") for length in lengths]
    return {"clip": clips, "name": [f"tone {i}" for i in range(count)]}


def recipe():
    """The tiny recipe and a task of sound."""
    tiny = tiny_recipe.recipe()
    vocabulary = tiny.mixture.tasks["captions"].targets.vocabulary
    source = ArraySource({"train": tones(4), "test": tones(6)})
    sound = Task("sound", source, Audio("clip", RATE, 0.4), Text("name", vocabulary, 8))
    tasks = dict.fromkeys([*tiny.mixture.tasks.values(), sound], 1)
    nets = tiny.nets | {"audio_input": AudioInputNet(16, RATE, num_mels=8)}
    return dataclasses.replace(tiny, mixture=Mixture(tasks), nets=nets)


def untrained(recipe):
    tasks = recipe.mixture.tasks
    train_vocabularies(tasks)
    inputs, targets = ({name: getattr(task, role) for name, task in tasks.items()} for role in ("inputs", "targets"))
    return Bundle(build_model(recipe), inputs, targets)


def write_predictions(folder, tasks, wrong):
    """Predictions for the test split in which the rows that `wrong(row)` says are wrong."""
    (folder / "predictions").mkdir(parents=True)
    for name, task in tasks.items():
        rows = task.source._columns["test"]
        texts = rows[task.inputs.field] if task.inputs.modality == "text" else None
        lines = []
        for row, target in enumerate(rows[task.targets.field]):
            record = {"input": texts[row] if texts else f"test[{row}]", "target": target, "score": -1.0}
            lines.append(json.dumps(record | {"output": f"{target}?" if wrong(row) else target}))
        (folder / "predictions" / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder, `{task: records}`, the tasks, and the rows of each call of `generate`."""
    folder, made = tmp_path_factory.mktemp("samples"), recipe()
    tasks, bundle = made.mixture.tasks, untrained(made)
    tasks["colours"].source._columns["test"]["image"][0] = np.zeros((300, 150, 3), "uint8")
    write_predictions(folder, tasks, lambda row: row % 2 == 0)
    generated, generate = [], bundle.generate
    bundle.generate = lambda task, inputs, lengths: generated.append(len(inputs)) or generate(task, inputs, lengths)
    write_samples(bundle, tasks, folder)
    records = {
        name: [json.loads(line) for line in (folder / "samples" / f"{name}.jsonl").read_text().splitlines()]
        for name in tasks
    }
    return folder, records, tasks, generated


def test_a_few_wrong_ones_and_a_few_right_ones_are_chosen(tmp_path):
    file = tmp_path / "task.jsonl"
    lines = [{"input": str(i), "target": "a", "output": "a" if i in (5, 70) else "b"} for i in range(100)]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    chosen = choose(file)
    assert [record["right"] for record in chosen] == [False] * 4 + [True] * 2
    assert [record["input"] for record in chosen] == ["0", "33", "65", "99", "5", "70"]
    file.write_text("")
    assert choose(file) == []


def test_only_the_chosen_rows_are_generated_again(run):
    assert run[3] == [8, 8, 6]  # captions, upper and sound; labels have no alignment


def test_pictures_are_kept_small_and_never_scaled_up(run):
    folder, records, tasks, _ = run
    assert [record["input"] for record in records["colours"][:2]] == ["test[0]", "test[6]"]
    sizes = [PIL.Image.open(folder / "samples" / record["picture"]).size for record in records["colours"]]
    assert sizes == [(64, 128)] + [(8, 8)] * 7
    second = np.asarray(PIL.Image.open(folder / "samples" / records["captions"][1]["picture"]))
    np.testing.assert_array_equal(second, tasks["captions"].source._columns["test"]["image"][6])


def test_clips_can_be_heard_and_seen(run):
    folder, records, tasks, _ = run
    for record in records["sound"]:
        row = int(record["input"][5:-1])
        samples, rate = soundfile.read(folder / "samples" / record["clip"])
        assert rate == RATE
        assert soundfile.info(folder / "samples" / record["clip"]).subtype == "PCM_16"
        np.testing.assert_allclose(samples, tasks["sound"].source._columns["test"]["clip"][row], atol=1e-4)
        loudness = np.asarray(PIL.Image.open(folder / "samples" / record["spectrogram"])).astype(int).sum(-1)
        assert loudness.shape == (64, -(-len(samples) // 80))
        mel_of_the_tone = np.log10(1 + 1000 / 700) / np.log10(1 + RATE / 2 / 700)
        assert np.median(loudness.argmax(0)) == pytest.approx(63 - 64 * mel_of_the_tone, abs=1.5)


def test_an_alignment_is_over_what_is_real(run):
    records = run[1]
    assert all(record["attention"] is None for record in records["colours"])
    for name in ("captions", "upper", "sound"):
        for record in records[name]:
            attention = record["attention"]
            weights = np.array(attention["weights"])
            assert weights.shape == (len(attention["pieces"]), len(attention["sources"]))
            np.testing.assert_allclose(weights.sum(1), 1, atol=5e-3)  # of at most 16 weights, rounded to four digits
    for record in records["upper"]:
        assert "".join(record["attention"]["sources"]) == f"{record['input']}</s>"
    assert records["captions"][0]["attention"]["grid"] == [2, 2]
    assert records["captions"][0]["attention"]["sources"] == ["1, 1", "1, 2", "2, 1", "2, 2"]
    longest = max(records["sound"], key=lambda record: len(record["attention"]["sources"]))
    assert longest["attention"]["sources"][:2] == ["0.00 s", "0.04 s"]
    assert float(longest["attention"]["sources"][-1][:-2]) < 0.3  # where the clip ends; 0.4 s were padded


def test_a_decoder_without_attention_has_no_alignment(tmp_path):
    made = tiny_recipe.recipe()
    blind = Body(16, [ConvBlock(16)], [AttentionBlock(16)], [ConvBlock(16, causal=True)])
    made = dataclasses.replace(made, mixture=made.mixture.only(["upper"]), body=blind, nets={})
    write_predictions(tmp_path, made.mixture.tasks, lambda row: True)
    write_samples(untrained(made), made.mixture.tasks, tmp_path)
    records = [json.loads(line) for line in (tmp_path / "samples" / "upper.jsonl").read_text().splitlines()]
    assert [record["attention"] for record in records] == [None] * 4


def test_tensorboard_reads_what_was_written(run):
    folder, records, _, _ = run
    write_tensorboard_samples(folder, step=7)
    (events,) = (folder / "tensorboard" / "samples").iterdir()
    values = {}
    for bytes_ in tf.data.TFRecordDataset(str(events)).as_numpy_iterator():
        event = tf.compat.v1.Event.FromString(bytes_)
        for value in event.summary.value:
            assert event.step == 7
            values[value.tag] = (value.metadata.plugin_data.plugin_name, tf.make_ndarray(value.tensor))
    counted = collections.Counter(tag.rpartition("/")[2] for tag in values)
    assert counted == {"text": 30, "picture": 16, "clip": 6, "spectrogram": 6, "attention": 22}
    plugin, text = values["upper_samples/1/text"]
    assert plugin == "text"
    assert f"    {records['upper'][0]['input']}\n" in text.item().decode()
    plugin, (width, height, png) = values["colours_samples/1/picture"]
    assert (plugin, width, height) == ("images", b"64", b"128")
    assert png == (folder / "samples" / records["colours"][0]["picture"]).read_bytes()
    plugin, clip = values["sound_samples/1/clip"]
    assert plugin == "audio"
    assert clip[0, 0] == (folder / "samples" / records["sound"][0]["clip"]).read_bytes()
    assert values["captions_samples/1/attention"][0] == "images"
    assert values["captions_samples/1/attention"][1][2].startswith(b"\x89PNG")


def test_a_full_disk_fails_no_run_that_is_scored(run, monkeypatch):
    training = importlib.import_module("multimodel.training.train")
    said = []
    reporter = types.SimpleNamespace(warning=said.append)

    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training, "write_tensorboard_samples", full)
    monkeypatch.setattr(training, "write_report", full)
    monkeypatch.setattr(training, "write_samples", lambda *arguments: None)
    training.keep_samples(None, {}, Run(run[0]), 7, reporter)
    training.report(Run(run[0]), reporter)
    assert len(said) == 2
    assert all("No space left on device" in line for line in said)


def test_a_log_that_cannot_be_written_is_an_os_error(run, tmp_path):
    (tmp_path / "tensorboard").write_text("a file where the folder should be")
    with pytest.raises(OSError, match="tensorboard"):
        write_tensorboard_samples(tmp_path, step=7)
