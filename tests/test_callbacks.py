"""A user's Keras callbacks: what they see, what their mistakes cost, and those of W&B and MLflow, without a network."""

import json

import keras
import mlflow
import numpy as np
import pytest
import wandb

import multimodel as mm
from multimodel.cli import run_command
from tests import tiny_recipe
from tests.test_readme import blocks


class Recorder(keras.callbacks.Callback):
    """Keeps what it is told."""

    def __init__(self):
        super().__init__()
        self.steps, self.epochs = [], []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append(dict(logs))

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(dict(logs))


class Fails(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 1:
            raise RuntimeError("my own mistake")


def of_readme(tracker):
    """The callbacks of the README's example of a tracker, logged every second step."""
    (code,) = (block for block in blocks("python") if f"import {tracker}\n" in block)
    names: dict = {"__name__": "readme"}
    exec(compile(code.replace("=50", "=2"), "README.md", "exec"), names)
    return names["callbacks"]()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Four steps of a recipe file's `main(recipe, callbacks)`, logged every second one."""
    place = tmp_path_factory.mktemp("trackers")
    recorder = Recorder()
    flags = ["--out", "run", "--tasks", "colours,upper", "--log-every", "2"]
    with pytest.MonkeyPatch.context() as environment:
        environment.chdir(place)
        for name, value in ("WANDB_MODE", "offline"), ("WANDB_SILENT", "true"), ("MLFLOW_DISABLE_TELEMETRY", "true"):
            environment.setenv(name, value)
        try:
            code = run_command(
                ["train", tiny_recipe.__file__, *flags],
                tiny_recipe.recipe,
                lambda: [recorder, *of_readme("wandb"), *of_readme("mlflow")],
            )
            assert code == 0
            yield recorder, [json.loads(line) for line in (place / "run" / "history.jsonl").read_text().splitlines()]
        finally:
            wandb.finish()
            mlflow.end_run()


def test_callbacks_see_every_step_and_the_means_of_every_line(trained):
    recorder, history = trained
    assert len(recorder.steps) == 4
    assert set(recorder.steps[0]) == {"loss", *(f"{t}_{m}" for t in ("colours", "upper") for m in ("loss", "accuracy"))}
    for record in history:
        logs = recorder.steps[record["step"] - 1]
        for task in ("colours", "upper"):
            assert logs[f"{task}_loss"] == pytest.approx(record["loss"][task], abs=1e-5)
            assert logs[f"{task}_accuracy"] == pytest.approx(record["accuracy"][task], abs=1e-5)
    assert recorder.epochs == [recorder.steps[-1]]


def test_weights_and_biases(trained):
    recorder, _ = trained
    summary = dict(wandb.run.summary)
    assert summary["batch/batch_step"] == 3
    assert {name: summary[f"batch/{name}"] for name in recorder.steps[-1]} == pytest.approx(recorder.steps[-1])


def test_mlflow(trained):
    recorder, _ = trained
    client = mlflow.MlflowClient()
    mlflow.flush_async_logging()
    for name in recorder.steps[0]:
        found = {
            metric.step: metric.value for metric in client.get_metric_history(mlflow.active_run().info.run_id, name)
        }
        assert found == pytest.approx({2: recorder.steps[1][name], 4: recorder.steps[3][name]})


def test_a_failing_callback_costs_no_weights(tmp_path):
    with pytest.raises(RuntimeError, match="my own mistake"):
        mm.train(tiny_recipe.recipe(), tmp_path / "run", tasks=["colours"], steps=5, callbacks=[Fails()])
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["status"] == "failed"
    assert record["reason"] == "RuntimeError: my own mistake"
    bundle = mm.load(tmp_path / "run")
    assert bundle.predict("colours", [np.zeros((8, 8, 3), "uint8")])[0] in tiny_recipe.COLOURS


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (Recorder(), "Callbacks are a list.* Put a single one into a list"),
        ([print], "Callbacks are Keras callbacks. Received: callbacks=.*print"),
        ([Recorder], "Give an instance"),
        ("wandb", "Callbacks are a list"),
    ],
)
def test_callbacks_are_checked_before_data_is_read(tmp_path, callbacks, message):
    with pytest.raises(mm.UserError, match=message):
        mm.train(tiny_recipe.recipe(), tmp_path / "run", callbacks=callbacks)
    assert not (tmp_path / "run").exists()


def test_a_function_of_callbacks_costs_no_former_run(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    called = []
    with pytest.raises(mm.UserError, match="--fresh to replace"):
        mm.train(tiny_recipe.recipe(), tmp_path, callbacks=lambda: called.append(1))
    assert not called
    with pytest.raises(mm.UserError, match="a function that gives one. Received: callbacks=None"):
        mm.train(tiny_recipe.recipe(), tmp_path, tasks=["colours"], fresh=True, callbacks=lambda: called.append(1))
    assert called
    assert (tmp_path / "run.json").read_text() == "{}"
