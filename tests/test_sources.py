"""Sources of a user's own files: JSON lines, CSV, folders, Hugging Face datasets; and rows that are left out."""

import dataclasses
import json

import numpy as np
import PIL.Image
import pytest

import multimodel as mm
from multimodel import Mixture, Task, UserError, Vocabulary
from multimodel.tasks import ArraySource, CsvSource, FolderSource, HuggingFaceSource, Image, JsonlSource, Label, Text
from multimodel.tasks.encoded import encode_examples
from multimodel.tasks.examples import INCOMPLETE, TOO_LONG, UNUSABLE, sampled_field
from multimodel.tasks.features import UnreadableInputError
from tests import tiny_recipe

COLOURS = Label("label", ("blue", "red"))


def jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def square(path, colour="red"):
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.Image.new("RGB", (4, 4), colour).save(path)
    return path


def all_of(source, split="train"):
    examples = source.examples(split)
    return [examples[row] for row in range(len(examples))]


def pictures(source, label=COLOURS, **options):
    return Task("a", source, Image("file", 4, 4), label, ("accuracy",), **options)


@pytest.mark.parametrize("kind", [JsonlSource, CsvSource])
def test_a_table_is_shared_out_to_splits(tmp_path, kind):
    path = tmp_path / "numbers"
    lines = [json.dumps({"en": str(i)}) for i in range(100)] if kind is JsonlSource else ["en", *map(str, range(100))]
    path.write_text("\n".join(lines))
    source = kind(path, held_out={"validation": 0.05, "test": 0.1})
    found = {split: [row["en"] for row in all_of(source, split)] for split in source.splits}
    assert sorted(sum(found.values(), []), key=int) == [str(i) for i in range(100)]
    assert {split: len(rows) for split, rows in found.items()} == pytest.approx(
        {"train": 85, "validation": 5, "test": 10}, abs=1
    )


def test_jsonl_of_several_files_and_paths_beside_them(tmp_path):
    square(tmp_path / "cat.png")
    paths = {s: jsonl(tmp_path / f"{s}.jsonl", [{"file": "cat.png", "label": "red"}]) for s in ("train", "test")}
    source = JsonlSource(splits=paths)
    assert source.splits == ("train", "test")
    inputs, _, targets, _ = encode_examples(pictures(source), "test").arrays([0])
    assert inputs[0, 0, 0].tolist() == [255, 0, 0]
    assert targets.tolist() == [[1]]


def test_text_that_is_also_a_file_stays_text(tmp_path):
    (tmp_path / "cat").write_text("a file of that name")
    source = JsonlSource(jsonl(tmp_path / "train.jsonl", [{"text": "cat"}] * 3), held_out={})
    assert all_of(source)[0] == {"text": "cat"}


def test_jsonl_signs_blank_lines_and_line_ends(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": "1"}\r\n\r\n  \n{"a": "\xc3\xa9\\u0000\\n"}\n{"a": "last"}')
    assert [row["a"] for row in all_of(JsonlSource(path, held_out={}))] == ["1", "é\0\n", "last"]


def test_csv_quotes_tabs_empty_cells_and_signs(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes('\ufefffile,text\r\na.png,"two\nlines, ""quoted"""\r\nb.png,\r\n\r\n'.encode())
    assert all_of(CsvSource(path, held_out={})) == [
        {"file": "a.png", "text": 'two\nlines, "quoted"'},
        {"file": "b.png", "text": None},
    ]
    (tmp_path / "rows.tsv").write_text("a\tb\n1\t2,3\n")
    assert all_of(CsvSource(tmp_path / "rows.tsv", held_out={})) == [{"a": "1", "b": "2,3"}]
    (tmp_path / "semicolons.csv").write_text("a;b\n1;2\n")
    assert all_of(CsvSource(tmp_path / "semicolons.csv", held_out={}, delimiter=";")) == [{"a": "1", "b": "2"}]


@pytest.mark.parametrize(
    ("kind", "content", "place", "message"),
    [
        (JsonlSource, b'{"a": 1}\n{\n', "line 2", "not JSON"),
        (JsonlSource, b'{"a": 1}\n[1]\n', "line 2", "each line is a JSON object"),
        (JsonlSource, b'{"a": 1}\n{"a": "\xff"}\n', "line 2", "not JSON"),
        (CsvSource, b"a,b\n1,2\n\n1,2,3\n", "line 4", "3 cells, where the first line has 2"),
        (CsvSource, b"a,b\n1,2\n1\n", "line 3", "1 cells, where the first line has 2"),
    ],
)
def test_a_bad_row_is_named_by_file_and_line(tmp_path, kind, content, place, message):
    (tmp_path / "bad").write_bytes(content)
    examples = kind(tmp_path / "bad", held_out={}).examples("train")
    assert len(examples) == 2
    assert examples[0]
    assert examples.where(1) == f"{tmp_path / 'bad'}, {place}"
    with pytest.raises(UnreadableInputError, match=message):
        examples[1]


@pytest.mark.parametrize("kind", [JsonlSource, CsvSource])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "which is no file"),
        ('{"a": 1}'.encode("utf-16"), "which is UTF-16. Convert it"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1f\x8b\x08", "gzip"),
    ],
)
def test_a_file_that_is_no_table_is_named(tmp_path, kind, content, message):
    if content is not None:
        (tmp_path / "table").write_bytes(content)
    with pytest.raises(UserError, match=message):
        kind(tmp_path / "table").examples("train")


@pytest.mark.parametrize("header", ["", ",", "a,a"])
def test_a_csv_file_names_its_fields(tmp_path, header):
    (tmp_path / "rows.csv").write_text(f"{header}\n1,2\n")
    with pytest.raises(UserError, match="names each field once"):
        CsvSource(tmp_path / "rows.csv").examples("train")


@pytest.mark.parametrize("held_out", [{"test": 1.0}, {"train": 0.1}, {"a": 0.6, "b": 0.5}, {"test": 0}])
def test_held_out_leaves_something_to_train_on(tmp_path, held_out):
    with pytest.raises(UserError, match="together below 1"):
        JsonlSource(tmp_path / "x.jsonl", held_out=held_out)


def test_a_folder_for_each_class(tmp_path):
    for colour in ("red", "blue"):
        for i in range(10):
            square(tmp_path / colour / f"{i}.png", colour)
    for name in (".DS_Store", "Thumbs.db", ".hidden/x.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    source = FolderSource(tmp_path)
    assert source.labels() == ("blue", "red")
    assert source.splits == ("train", "test")
    rows = all_of(source) + all_of(source, "test")
    assert len(rows) == 20
    assert {row["label"] for row in all_of(source, "test")} == {"blue", "red"}
    assert all(row["file"] == f"{row['label']}/{row['file'][-5:]}" for row in rows)
    assert source.examples("train").where(0).startswith(str(tmp_path))


def test_a_file_with_its_text_or_fields_beside_it(tmp_path):
    for name, text in (("a", "one\n"), ("b", "two\nlines"), ("c", None)):
        square(tmp_path / f"{name}.png")
        if text:
            (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "c.json").write_text('{"text": "three", "label": "red"}')
    rows = all_of(FolderSource(tmp_path, held_out={}))
    assert [row["text"] for row in rows] == ["one", "two\nlines", "three"]
    assert [row["label"] for row in rows] == [None, None, "red"]
    (tmp_path / "c.json").write_text("[1]")
    with pytest.raises(UnreadableInputError, match="holds a JSON object"):
        FolderSource(tmp_path, held_out={}).examples("train")[2]


def test_folders_named_as_splits_are_splits_and_classes_named_so_are_classes(tmp_path):
    for name in ("train/red/0", "train/blue/1", "test/red/2"):
        square(tmp_path / f"{name}.png")
    source = FolderSource(tmp_path)
    assert source.splits == ("train", "test")
    assert [row["label"] for row in all_of(source)] == ["blue", "red"]
    assert [row["file"] for row in all_of(source, "test")] == ["test/red/2.png"]
    square(tmp_path / "car" / "3.png")
    assert FolderSource(tmp_path).labels() == ("blue", "car", "red")  # trains, cars and tests: no splits
    assert FolderSource(tmp_path, held_out={}).splits == ("train",)


def test_a_folder_that_there_is_not(tmp_path):
    with pytest.raises(UserError, match="which is none"):
        FolderSource(tmp_path / "no").examples("train")


def test_hugging_face_datasets(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra huggingface is not installed")
    square(tmp_path / "a.png", "blue")
    columns = {"file": [str(tmp_path / "a.png")] * 10, "label": [0, 1] * 4 + [0, -1], "text": [None, *"abcdefghi"]}
    features = datasets.Features(
        {
            "file": datasets.Image(),
            "label": datasets.ClassLabel(names=["blue", "red"]),
            "text": datasets.Value("string"),
        }
    )
    data = datasets.Dataset.from_dict(columns, features)
    source = HuggingFaceSource(data)
    assert source.splits == ("train", "test")
    assert source.labels("label") == ("blue", "red")
    assert len(all_of(source)) + len(all_of(source, "test")) == 10
    rows = all_of(HuggingFaceSource(datasets.DatasetDict(train=data, validation=data)), "test")
    assert [row["label"] for row in rows] == ["blue", "red"] * 4 + ["blue", None]
    assert rows[0]["text"] is None
    made = encode_examples(pictures(HuggingFaceSource(data, held_out={})), "train")
    assert len(made) == 9
    assert made.arrays([0])[0][0, 0, 0].tolist() == [0, 0, 255]
    data.save_to_disk(tmp_path / "saved")
    saved = HuggingFaceSource(tmp_path / "saved", held_out={})
    assert [row["label"] for row in all_of(saved)] == [row["label"] for row in rows]
    assert saved.version("train") == HuggingFaceSource(tmp_path / "saved").version("train")
    with pytest.raises(UserError, match="reads what save_to_disk wrote"):
        HuggingFaceSource(tmp_path / "no").examples("train")


def test_rows_that_lack_a_target_train_the_tasks_that_they_have():
    images = [np.zeros((4, 4, 3), "uint8")] * 6
    rows = {"file": images, "label": ["red", None, "blue"] * 2, "text": ["a", "b", None] * 2}
    source, words = ArraySource({"train": rows}), Vocabulary(320)
    captions = Task("b", source, Image("file", 4, 4), Text("text", words, 4))
    words.train(sampled_field(captions, captions.targets, "train"))
    labels = encode_examples(pictures(source), "train")
    assert len(labels) == len(encode_examples(captions, "train")) == 4
    assert [(one.row, one.kind) for one in labels.left_out] == [(1, INCOMPLETE), (4, INCOMPLETE)]
    assert labels.arrays(range(4))[2].tolist() == [[1], [0], [1], [0]]


def test_bad_rows_are_left_out_and_listed_and_too_many_are_an_error(tmp_path):
    rows = [{"file": f"{i}.png", "label": "red"} for i in range(20)]
    for i in range(19):
        square(tmp_path / f"{i}.png")
    (tmp_path / "7.png").write_bytes(b"no picture")
    source = JsonlSource(jsonl(tmp_path / "rows.jsonl", rows), held_out={})
    made = encode_examples(pictures(source, max_unusable=0.1), "train")
    assert len(made) == 18
    assert [(one.row, one.kind, one.path, one.field) for one in made.left_out] == [
        (7, UNUSABLE, str(tmp_path / "7.png"), "file"),
        (19, UNUSABLE, str(tmp_path / "19.png"), "file"),
    ]
    with pytest.raises(UserError, match=r"'file', example 7 \('.*7.png'\): not a readable image .* max_unusable=0.05"):
        encode_examples(pictures(source, max_unusable=0.05), "train")


def test_too_long_text_is_cut_or_refused_and_counted():
    words = Vocabulary(320)
    words.train(["a b c d e f"] * 9)
    columns = {"x": ["a", "a b c d e f a b c d e f", "b"], "y": ["a"] * 3}
    source = ArraySource({"train": columns})
    cut = encode_examples(Task("t", source, Text("x", words, 4), Text("y", words, 4)), "train")
    assert (len(cut), cut.cut, cut.left_out) == (3, 1, [])
    task = Task("t", source, Text("x", words, 4, too_long="refuse"), Text("y", words, 4))
    refused = encode_examples(task, "train")
    assert (len(refused), refused.cut) == (2, 0)
    assert [(one.row, one.kind) for one in refused.left_out] == [(1, TOO_LONG)]


def test_a_run_lists_what_it_left_out_and_refuses_what_training_refused(tmp_path):
    recipe = tiny_recipe.recipe()
    upper, colours = recipe.mixture.tasks["upper"], recipe.mixture.tasks["colours"]
    upper.source._columns["train"]["text"][5] = 7
    upper.source._columns["test"]["text"][3] = None
    colours.source._columns["test"]["image"][1] = "no.png"
    vocabulary = upper.inputs.vocabulary
    tasks = {
        dataclasses.replace(upper, inputs=Text("text", vocabulary, 3, too_long="refuse")): 1,
        dataclasses.replace(colours, max_unusable=0.1): 1,
    }
    recipe = dataclasses.replace(recipe, mixture=Mixture(tasks), steps=2)
    model = mm.train(recipe, tmp_path / "run", log_every=1)
    listed = [json.loads(line) for line in (tmp_path / "run" / "left_out.jsonl").read_text().splitlines()]
    assert {(one["task"], one["split"], one["kind"], one["row"]) for one in listed if one["kind"] == UNUSABLE} == {
        ("upper", "train", UNUSABLE, 5),
        ("colours", "test", UNUSABLE, 1),
    }
    too_long = sum(one["kind"] == TOO_LONG for one in listed if one["split"] == "train")
    counts = json.loads((tmp_path / "run" / "run.json").read_text())["left_out"]
    assert counts["upper"]["train"] == {UNUSABLE: 1, TOO_LONG: too_long}
    assert counts["upper"]["test"][INCOMPLETE] == 1
    assert too_long > 0
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["tasks"]["colours"]["examples"] == 19
    predictions = (tmp_path / "run" / "predictions" / "colours.jsonl").read_text().splitlines()
    assert [json.loads(line)["input"] for line in predictions[:2]] == ["test[0]", "test[2]"]
    assert mm.load(tmp_path / "run").try_predict("upper", ["ab cd ef gh ab cd"])[0].error.startswith("too long")
    assert model.try_predict("upper", ["ab"])[0].error is None


def test_epochs_are_a_length_of_training(tmp_path):
    recipe = dataclasses.replace(tiny_recipe.recipe(), steps=mm.Epochs(1, "upper"), batch_size=80)
    mm.train(recipe, tmp_path / "run", log_every=2)
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["step"] == 5  # 100 examples, 20 of them a step
    assert metrics["usage"]["upper"]["epochs"] == 1
    assert metrics["usage"]["upper"]["examples"] == 100
    assert 0 < metrics["usage"]["upper"]["padding"]["inputs"] < 1
    assert metrics["usage"]["upper"]["tokens"] > 200
    assert metrics["usage"]["colours"] == {"examples": 200, "tokens": 0, "epochs": 3.333, "padding": {}}
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert [line["examples"]["upper"] for line in lines] == [40, 80, 100]
    assert lines[-1]["tokens"]["upper"] == metrics["usage"]["upper"]["tokens"]
    assert set(lines[0]["padding"]["upper"]) == {"inputs", "targets"}
