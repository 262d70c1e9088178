"""Encoded examples in the cache: read once, renewed when anything changes, safe from kills and from each other."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import PIL.Image
import pytest

from multimodel import Task, Vocabulary
from multimodel.tasks import ArraySource, Image, JsonlSource, Label, Text, numbers
from multimodel.tasks import encoded as encoded_module
from multimodel.tasks.encoded import LazyExamples, cache_key, encode_examples, training_examples

ROOT = pathlib.Path(__file__).parent.parent
LABEL = Label("label", ("a", "b"))


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MULTIMODEL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def table(tmp_path):
    rows = [{"image": f"{i}.png", "label": "ab"[i % 2], "text": f"text {i}"} for i in range(30)]
    for i in range(30):
        PIL.Image.new("RGB", (6, 6), (i, 0, 0)).save(tmp_path / f"{i}.png")
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def pictures(table, size=4, **options):
    return Task("pictures", JsonlSource(table, held_out={}), Image("image", size, size), LABEL, **options)


def words(table, max_length=6):
    vocabulary = Vocabulary(320)
    vocabulary.train(["text 1 2 3"] * 9)
    return Task("words", JsonlSource(table, held_out={}), Text("text", vocabulary, max_length), LABEL)


def test_what_is_cached_is_what_is_encoded(own_cache, table):
    for task in (pictures(table), words(table)):
        cached, fresh = training_examples(task), encode_examples(task, "train")
        again = training_examples(task)
        assert len(cached) == len(again) == len(fresh) == 30
        for one, other, third in zip(*(e.arrays([3, 29, 3]) for e in (cached, fresh, again)), strict=True):
            np.testing.assert_array_equal(one, other)
            np.testing.assert_array_equal(one, third)
    assert len(list((own_cache / "encoded").iterdir())) == 2


def test_a_second_run_reads_no_file(own_cache, table, monkeypatch):
    first = training_examples(pictures(table)).arrays(range(30))
    monkeypatch.setattr(Image, "read", lambda self, value: pytest.fail("read again"))
    for one, other in zip(training_examples(pictures(table)).arrays(range(30)), first, strict=True):
        np.testing.assert_array_equal(one, other)


def test_left_out_rows_are_remembered(own_cache, table):
    (table.parent / "4.png").write_bytes(b"broken")
    for _ in range(2):
        made = training_examples(pictures(table, max_unusable=0.1))
        assert [(one.row, one.path) for one in made.left_out] == [(4, str(table.parent / "4.png"))]
        assert made.arrays([4])[0][0, 0, 0, 0] == 5  # the next row that is usable


def test_whatever_changes_is_read_anew(own_cache, table):
    keys = {cache_key(pictures(table), "train")}

    def changed(task):
        key = cache_key(task, "train")
        assert key not in keys
        keys.add(key)

    changed(pictures(table, size=5))
    changed(words(table))
    changed(words(table, max_length=7))
    changed(Task("pictures", JsonlSource(table, held_out={}), Image("image", 4, 4), Label("label", ("b", "a"))))
    other = words(table)
    other.inputs.vocabulary.train(["something else"] * 9)
    changed(other)
    PIL.Image.new("RGB", (7, 7)).save(table.parent / "3.png")
    changed(pictures(table))
    os.utime(table.parent / "3.png", (1, 1))
    changed(pictures(table))
    (table.parent / "9.png").unlink()
    changed(pictures(table))
    table.write_text(table.read_text().replace('"b"', '"a"', 1))
    changed(pictures(table))
    assert cache_key(pictures(table), "train") in keys


def test_a_dataset_of_the_quickstart_has_a_version(own_cache):
    vocabulary = Vocabulary(320)
    vocabulary.train(["one two three"] * 9)
    task = Task("numbers", numbers(), Text("en", vocabulary, 6), Text("de", vocabulary, 6))
    assert cache_key(task, "train") == cache_key(task, "train") != cache_key(task, "test")


def test_examples_in_memory_are_not_kept(own_cache):
    source = ArraySource({"train": {"image": [np.zeros((4, 4, 3), "uint8")], "label": ["a"]}})
    task = Task("pictures", source, Image("image", 4, 4), LABEL)
    assert len(training_examples(task)) == 1
    assert not own_cache.exists()


@pytest.mark.parametrize("damage", ["cut", "missing", "manifest"])
def test_damage_is_mended(own_cache, table, damage):
    training_examples(pictures(table))
    (folder,) = (own_cache / "encoded").iterdir()
    file = folder / ("manifest.json" if damage == "manifest" else "inputs.npy")
    if damage == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-10])
    assert training_examples(pictures(table)).arrays([7])[0][0, 0, 0, 0] == 7


BUILD = """
import sys, time
from multimodel import Task
from multimodel.tasks import Image, JsonlSource, Label
from multimodel.tasks.encoded import training_examples
read = Image.read
def slowly(self, value):
    print("reading", flush=True)
    time.sleep(float(sys.argv[2]))
    return read(self, value)
Image.read = slowly
task = Task("pictures", JsonlSource(sys.argv[1], held_out={}), Image("image", 4, 4), Label("label", ("a", "b")))
print(int(training_examples(task).arrays([7])[0][0, 0, 0, 0]))
"""


def build(table, pause):
    command = [sys.executable, "-c", BUILD, str(table), str(pause)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def test_a_killed_build_leaves_nothing_that_is_used(own_cache, table):
    process = build(table, 60)
    assert process.stdout.readline() == "reading\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    drafts = list((own_cache / "encoded").iterdir())
    assert [path.name.startswith(".draft-") for path in drafts] == [True]
    assert training_examples(pictures(table)).arrays([7])[0][0, 0, 0, 0] == 7
    assert not drafts[0].exists()


def test_two_processes_at_once_agree(own_cache, table):
    processes = [build(table, 0.02) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [output.splitlines()[-1] for output in outputs] == ["7", "7"]
    assert len(list((own_cache / "encoded").iterdir())) == 1


def test_the_draft_of_a_living_process_is_left_alone(own_cache, table):
    process = build(table, 60)
    assert process.stdout.readline() == "reading\n"
    training_examples(pictures(table))
    assert sum(path.name.startswith(".draft-") for path in (own_cache / "encoded").iterdir()) == 1
    process.kill()
    process.wait()


def test_where_the_disk_has_no_room_rows_are_read_for_each_batch(own_cache, table, monkeypatch):
    monkeypatch.setattr(encoded_module, "SHARE_OF_DISK", 0)
    assert not isinstance(training_examples(pictures(table)), LazyExamples)  # in memory
    monkeypatch.setattr(encoded_module, "IN_MEMORY", 0)
    (table.parent / "4.png").write_bytes(b"broken")
    lazy = training_examples(pictures(table, max_unusable=0.1))
    assert isinstance(lazy, LazyExamples)
    inputs, lengths, targets, usable = lazy.arrays([9, 4, 9])
    assert usable.tolist() == [True, False, True]
    assert inputs[:, 0, 0, 0].tolist() == [9, 0, 9]
    assert targets.tolist() == [[1], [0], [1]]
    assert lengths is None
    assert [one.path for one in lazy.left_out] == [str(table.parent / "4.png")]
    assert not lazy.arrays([4])[3].any()


def test_an_array_of_the_cache_does_not_stay_in_the_process(own_cache, table):
    """Each call maps the file anew: no mapping of it is left."""
    made = training_examples(pictures(table))
    made.arrays(range(30))
    if not pathlib.Path("/proc/self/maps").is_file():
        pytest.skip("the mappings of a process are seen in /proc alone, which this system has not")
    assert str(own_cache) not in pathlib.Path("/proc/self/maps").read_text()


def test_rows_are_read_in_threads_in_order(own_cache, table, monkeypatch):
    """Several at once, and a slow one does not change places with a quick one."""
    read, running, most = Image.read, [], []

    def slowly(self, value):
        running.append(value)
        most.append(len(running))
        time.sleep(0.05 if "3.png" in value else 0.01)
        running.remove(value)
        return read(self, value)

    monkeypatch.setattr(Image, "read", slowly)
    monkeypatch.setattr("multimodel.tasks.examples.CHUNK", 1)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    made = encode_examples(pictures(table), "train")
    assert made.arrays(range(30))[0][:, 0, 0, 0].tolist() == list(range(30))
    assert 2 <= max(most) <= 4
