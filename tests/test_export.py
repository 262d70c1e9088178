"""Exports: what lies there, the answers of the run in a process that has TensorFlow alone, and what is refused."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import multimodel as mm
from multimodel.cli import run_command
from multimodel.export.exported import UnreadableRowError, versions_of
from multimodel.export.parity import DisagreementError
from multimodel.export.predictor import Prediction
from multimodel.export.saved_model import export
from multimodel.search import Search
from tests import tiny_recipe
from tests.hearing_recipe import CONTENTS, RATE, png


def test_the_proof_covers_every_task(hearing_export, hearing_run):
    folder, proof = hearing_export
    about = json.loads((folder / "1/assets.extra/multimodel.json").read_text())
    assert about["parity"] == proof
    assert set(about["tasks"]) == set(proof) == set(CONTENTS)
    for task, found in proof.items():
        assert found["examples"] == found["equal"] == len(hearing_run[2][task])
        assert found["largest_score_difference"] < 1e-4
    assert about["tasks"]["tones"]["sample_rate"] == RATE
    assert about["tasks"]["colours"]["labels"] == list(tiny_recipe.COLOURS)
    assert about["inputs"]["upper"]["max_length"] == 10


FRESH = """
import json, sys, pathlib
import tensorflow as tf, tensorflow_text
assert not {"multimodel", "keras_hub", "modality_nets"} & set(sys.modules)
loaded = tf.saved_model.load(sys.argv[1])
found = {}
for folder in map(pathlib.Path, sys.argv[2:]):
    contents = [file.read_bytes() for file in sorted(folder.iterdir())]
    run = loaded.signatures[folder.name]
    whole = run(inputs=tf.constant(contents))
    alone = [run(inputs=tf.constant([content])) for content in contents]
    found[folder.name] = {name: values.numpy().tolist() for name, values in whole.items()}
    found[folder.name]["alone"] = [float(one["scores"][0]) for one in alone]
    found[folder.name]["types"] = {name: values.dtype.name for name, values in whole.items()}
print(json.dumps(found, default=lambda value: value.decode()))
"""


def test_a_process_with_tensorflow_alone_answers_as_the_run(hearing_export, hearing_run, tmp_path):
    for task, contents in CONTENTS.items():
        (tmp_path / task).mkdir()
        for row, content in enumerate(contents):
            (tmp_path / task / f"{row}").write_bytes(content)
    command = [sys.executable, "-c", FRESH, hearing_export[0] / "1", *(tmp_path / task for task in CONTENTS)]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout.splitlines()[-1])
    for task, contents in CONTENTS.items():
        expected = hearing_run[1].try_predict(task, contents)
        scores = [prediction.score for prediction in expected]
        assert found[task]["outputs"] == [prediction.output for prediction in expected]
        np.testing.assert_allclose(found[task]["scores"], scores, atol=1e-4)
        np.testing.assert_allclose(found[task]["alone"], scores, atol=1e-4)
        types = {"outputs": "string", "scores": "float32"}
        if task == "colours":
            types |= {"labels": "string", "probabilities": "float32"}
            assert found[task]["labels"] == [list(tiny_recipe.COLOURS)] * 3
            best = np.max(found[task]["probabilities"], axis=1)
            np.testing.assert_allclose(np.log(best), scores, atol=1e-4)
        assert found[task]["types"] == types


def test_a_run_and_an_export_predict_the_same(hearing_loaded, hearing_run):
    run = hearing_run[1]
    for task, contents in CONTENTS.items():
        values = [*contents, b"\xff\x00 of no kind"]
        expected = run.try_predict(task, values)
        assert expected[-1].error
        assert hearing_loaded.tasks[task] == run.tasks[task]
        given = hearing_loaded.try_predict(task, values)
        assert [p.output for p in given] == [p.output for p in expected]
        assert [bool(p.error) for p in given] == [bool(p.error) for p in expected]
    picture = np.full((30, 20, 3), (0, 0, 255), "uint8")
    assert hearing_loaded.predict("colours", [picture]) == run.predict("colours", [picture])
    with pytest.raises(mm.UserError, match=r"too long. Received|too long, of 1000"):
        hearing_loaded.predict("tones", [np.zeros(1500, "float32")])
    with pytest.raises(mm.UserError, match="An export searches as it was exported"):
        hearing_loaded.predict("upper", ["ab"], Search(beams=3))


def test_a_bad_row_is_named_and_harms_no_other(hearing_loaded):
    for content in (b"", b"no picture", png((1, 2, 3))[:50]):
        with pytest.raises(UnreadableRowError) as caught:
            hearing_loaded.run("colours", [png((255, 0, 0)), content, png((0, 0, 0))])
        assert caught.value.row == 1


def size_of(folder):
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_versions_and_fewer_tasks(hearing_export, hearing_run):
    folder, _ = hearing_export
    one, _ = export(hearing_run[1], folder, {"colours": hearing_run[2]["colours"]})
    assert one == folder / "2"
    assert sorted(file.name for file in folder.iterdir()) == ["1", "2"]
    assert list(mm.load(folder).tasks) == ["colours"]
    assert size_of(one / "variables") < 0.8 * size_of(folder / "1" / "variables")
    assert size_of(one) < 0.5 * size_of(folder / "1")
    names = [name for name, _ in tf.train.list_variables(str(one / "variables/variables"))]
    assert len(names) < len(tf.train.list_variables(str(folder / "1/variables/variables")))
    (folder / "2" / "saved_model.pb").unlink()  # half a version is none
    assert versions_of(folder) == [1]


def test_searching_by_beams_is_exported(hearing_run, tmp_path):
    changes = {"beams": 3, "length_penalty": 1.0}
    version, proof = export(hearing_run[1], tmp_path / "beams", {"upper": hearing_run[2]["upper"]}, changes)
    assert proof["upper"]["equal"] == 20
    loaded = mm.load(version)
    assert loaded.tasks["upper"].search == Search(beams=3, length_penalty=1.0)
    contents = ["ab cd", "gh"]
    assert loaded.predict("upper", contents) == hearing_run[1].predict("upper", contents, loaded.tasks["upper"].search)


@pytest.mark.parametrize("change", ["output", "score", "error"])
def test_an_export_that_disagrees_is_not_kept(hearing_run, tmp_path, monkeypatch, change):
    bundle = hearing_run[1]
    answer = bundle.answer
    changed = {"output": ("other", -1.0), "score": ("?", -1.0), "error": (None, None, "too long")}[change]

    def disagree(task, values, search, n_best):
        predictions = answer(task, values, search, n_best)
        if change == "score":
            return [*predictions[:-1], dataclasses.replace(predictions[-1], score=predictions[-1].score + 1e-3)]
        return [*predictions[:-1], Prediction(*changed)]

    monkeypatch.setattr(bundle, "answer", disagree)
    with pytest.raises(DisagreementError, match="task 'colours', held-out example 19") as caught:
        export(bundle, tmp_path / "wrong", {"colours": hearing_run[2]["colours"]})
    assert caught.value.exit_code == 3
    assert list((tmp_path / "wrong").iterdir()) == []


def test_warm_up_requests_are_tf_servings(hearing_export, hearing_loaded):
    from tensorflow_serving.apis import prediction_log_pb2

    file = hearing_export[0] / "1/assets.extra/tf_serving_warmup_requests"
    records = [prediction_log_pb2.PredictionLog.FromString(r.numpy()) for r in tf.data.TFRecordDataset(str(file))]
    requests = [record.predict_log.request for record in records]
    assert [request.model_spec.signature_name for request in requests] == list(hearing_loaded.tasks)
    assert {request.model_spec.name for request in requests} == {"tiny"}
    for request in requests:
        contents = tf.make_ndarray(request.inputs["inputs"]).tolist()
        assert hearing_loaded.run(request.model_spec.signature_name, contents)["scores"].shape == (1,)


def test_a_foreign_saved_model_is_refused(tmp_path, hearing_export):
    class Reads(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
        def answer(self, inputs):
            contents = tf.map_fn(tf.io.read_file, inputs)
            return {"outputs": contents, "scores": tf.zeros(tf.shape(inputs))}

    module = Reads()
    folder = tmp_path / "foreign" / "1"
    tf.saved_model.save(module, folder, {"upper": module.answer})
    with pytest.raises(mm.UserError, match="An export's folder is whole"):  # without multimodel.json
        mm.load(folder)
    (folder / "assets.extra").mkdir()
    about = (hearing_export[0] / "1/assets.extra/multimodel.json").read_text()
    (folder / "assets.extra/multimodel.json").write_text(about)
    with pytest.raises(mm.UserError, match="graphs compute alone. Received: an operation 'ReadFile'"):
        mm.load(folder)


@pytest.mark.parametrize("where", ["body", "net"])
def test_loading_a_run_runs_no_code_from_it(hearing_run, tmp_path, where):
    """A configuration that names any class or function to call."""
    (tmp_path / "run" / "model").mkdir(parents=True)
    for file in (hearing_run[0] / "model").iterdir():
        (tmp_path / "run" / "model" / file.name).write_bytes(file.read_bytes())
    file = tmp_path / "run/model/architecture.json"
    config = json.loads(file.read_text())
    sign = tmp_path / "sign"
    evil = {"module": "subprocess", "class_name": "Popen", "config": {"args": ["touch", str(sign)]}}
    spots = {"body": ("body",), "net": ("nets", next(iter(config["nets"])))}[where]
    place = config
    for key in spots[:-1]:
        place = place[key]
    for attack in (evil, {**evil, "registered_name": "Popen"}, {"class_name": "__lambda__", "config": {"value": "x"}}):
        place[spots[-1]] = attack
        file.write_text(json.dumps(config))
        with pytest.raises(mm.UserError):
            mm.load(tmp_path / "run")
        assert not sign.exists()


def test_commands(hearing_run, tmp_path, capsys, monkeypatch):
    run, out, nameless = hearing_run[0], tmp_path / "out", tmp_path / "nameless"
    nameless.mkdir()
    (nameless / "run.json").write_text(json.dumps({"recipe_file": ""}))
    assert run_command(["export", str(run), str(out), "--tasks", "upper,colours", "--beams", "2"]) == 0
    printed = capsys.readouterr().out
    assert printed.rstrip().endswith(str(out / "1"))
    assert "upper: 20 of 20 outputs equal" in printed
    flags = ["--beams", "2", "--json"]
    assert run_command(["predict", str(out), "upper", "ab cd", *flags]) == 0
    of_export = json.loads(capsys.readouterr().out)
    assert run_command(["predict", str(run), "upper", "ab cd", *flags, "--n-best", "2"]) == 0
    of_run = json.loads(capsys.readouterr().out)
    assert of_run["output"] == of_export["output"] == of_run["n_best"][0]["output"]
    assert abs(of_run["score"] - of_export["score"]) < 1e-4
    assert len(of_run["n_best"]) == 2
    assert run_command(["predict", str(run), "upper", "ab", "cd", "--temperature", "2", "--n-best", "3"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6
    assert run_command(["predict", str(run), "colours", str(_picture(tmp_path)), "--n-best", "3", "--json"]) == 0
    assert {one["output"] for one in json.loads(capsys.readouterr().out)["n_best"]} == set(tiny_recipe.COLOURS)
    mistakes = {
        ("predict", str(run), "upper", "x", "--n-best", "2"): "n_best is from 1 to the number of beams",
        ("predict", str(run), "upper", "x", "--beams", "0"): "beams is at least 1",
        ("predict", str(run), "upper", "x", "--beams", "2", "--temperature", "1"): "Leave one of them out",
        ("predict", str(run), "uper", "x", "--beams", "2"): "Did you mean 'upper'",
        ("export", str(run), str(out), "--tasks", "uper"): "Did you mean 'upper'",
        ("export", str(nameless), str(out)): "Add --recipe FILE.py",
        ("export", str(tmp_path / "no"), str(out)): "without a readable one",
        ("export", str(run), "/proc/none"): "folder can be written",
    }
    for arguments, message in mistakes.items():
        assert run_command(list(arguments)) == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.splitlines()) == 1
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    assert run_command(["export", str(run), str(out)]) == 2
    assert "KERAS_BACKEND=tensorflow multimodel export" in capsys.readouterr().err


def test_int8(hearing_run, tmp_path, capsys):
    assert run_command(["export", str(hearing_run[0]), str(tmp_path / "small"), "--int8", "--tasks", "upper"]) == 0
    printed = capsys.readouterr().out
    assert "upper: 20 of 20 outputs equal" in printed
    assert "in float, " in printed
    variables = tf.train.load_checkpoint(str(tmp_path / "small/1/variables/variables"))
    names = variables.get_variable_to_dtype_map()
    small = sum(np.prod(variables.get_variable_to_shape_map()[n]) for n, kind in names.items() if kind == tf.int8)
    whole = sum(np.prod(shape) for shape in variables.get_variable_to_shape_map().values())
    assert small > 0.6 * whole
    expected = hearing_run[1].try_predict("upper", ["ab cd"])[0].score
    given = mm.load(tmp_path / "small").try_predict("upper", ["ab cd"])[0].score
    assert given != expected
    assert abs(given - expected) < 0.05 * abs(expected) + 1


def _picture(folder):
    file = pathlib.Path(folder) / "one.png"
    file.write_bytes(png((0, 0, 255)))
    return file
