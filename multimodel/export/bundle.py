"""Bundle: a trained model with all that it takes to use it on raw inputs."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np

import modality_nets  # noqa: F401, its classes must be known before they are read
import multimodel.body  # noqa: F401
from multimodel.backend import predict_in_chunks
from multimodel.errors import UserError, unknown
from multimodel.generation.generator import Generator
from multimodel.model import MultiModel
from multimodel.tasks import features
from multimodel.tasks.batches import features_of
from multimodel.tasks.vocabulary import Vocabulary


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What came of one input: an output and its log-probability in nats, or the error that kept it from being read."""

    output: str | None
    score: float | None
    error: str | None = None


class Bundle:
    """A model and the features of its tasks: raw inputs in, text and label names out.

    Attributes:
        tasks: `{name: Signature}`.
        model: the MultiModel.
        inputs, targets: `{name: feature}`.
    """

    def __init__(self, model, inputs, targets):
        self.model, self.inputs, self.targets = model, inputs, targets
        self.tasks = dict(model.signatures)
        self._generators: dict = {}

    def predict(self, task, inputs):
        """Outputs for raw inputs: paths, bytes, PIL images, arrays or str, as the task reads.

        Args:
            task: name of a task.
            inputs: a list.

        Returns:
            A list of str: text, or names of labels.

        Raises:
            UserError: if there is no such task, or an input cannot be read; the message names it.
        """
        predictions = self.try_predict(task, inputs)
        for value, prediction in zip(inputs, predictions, strict=True):
            if prediction.error:
                raise UserError(f"{_shown(value)}: {prediction.error}")
        return [prediction.output for prediction in predictions]

    def try_predict(self, task, inputs):
        """A Prediction for each raw input; one that cannot be read does not keep the others from being answered."""
        if task not in self.tasks:
            raise unknown("task", task, self.tasks)
        if isinstance(inputs, str | bytes | pathlib.PurePath):
            raise UserError(f"Inputs are a list. Received: inputs={_shown(inputs)}. Put it into one: [input].")
        results: list[Prediction | None] = [None] * len(inputs)
        values, rows, feature = [], [], self.inputs[task]
        for row, value in enumerate(inputs):
            try:
                values.append(feature.read(value))
                rows.append(row)
            except features.UnreadableInputError as error:
                results[row] = Prediction(None, None, str(error))
        if values:
            arrays, lengths = feature.encode(values)
            lengths = None if lengths is None else np.asarray(lengths)
            ids, scores = self.generate(task, np.asarray(arrays), lengths)
            for row, output, score in zip(rows, self.decode(task, ids), scores, strict=True):
                results[row] = Prediction(output, float(score))
            if lengths is not None:
                for i in np.flatnonzero(feature.refused(lengths)):
                    message = f"too long. Received: {lengths[i]}, of {feature.shape[0]} at most"
                    results[rows[i]] = Prediction(None, None, message)
        return results

    def generate(self, task, inputs, lengths):
        """Ids `(b, m)` and scores `(b,)` for encoded inputs `(b, ...)` and their lengths `(b,)` or None."""
        if task not in self._generators:
            self._generators[task] = GreedyGenerator(self.model, task)
        outputs = predict_in_chunks(self._generators[task], features_of(inputs, lengths))
        return outputs["ids"], outputs["score"]

    def decode(self, task, ids):
        """Ids `(b, m)` -> list of str."""
        return self.targets[task].decode(ids)

    def save(self, folder):
        """Writes weights, architecture and vocabularies into a folder, which appears once all of it is there.

        One that is there is replaced; if that fails, it stays.
        """
        folder = pathlib.Path(folder)
        draft, former = (folder.with_name(f".{folder.name}.{name}") for name in ("draft", "former"))
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        self.model.save_weights(draft / "model.weights.h5")
        tasks = {
            name: {"inputs": features.to_json(self.inputs[name]), "targets": features.to_json(self.targets[name])}
            for name in self.tasks
        }
        (draft / "architecture.json").write_text(json.dumps(self.model.get_config(), indent=1))
        (draft / "tasks.json").write_text(json.dumps(tasks, indent=1))
        for vocabulary in features.vocabularies_of([*self.inputs.values(), *self.targets.values()]):
            (draft / f"{vocabulary.name}.vocabulary").write_bytes(vocabulary.save())
        shutil.rmtree(former, ignore_errors=True)
        if folder.exists():
            folder.rename(former)
        draft.rename(folder)
        shutil.rmtree(former, ignore_errors=True)

    @classmethod
    def load(cls, folder):
        """Reads what `save` wrote. Runs no code from the folder and reads no pickle.

        Raises:
            UserError: if a part is of a class that is not known here.
        """
        folder = pathlib.Path(folder)
        try:
            model = MultiModel.from_config(json.loads((folder / "architecture.json").read_text()))
        except TypeError as error:
            raise UserError(
                f"Every part's class is imported before a model is loaded. Received: {str(error)[:120]}... "
                f"Register the class with keras.saving.register_keras_serializable and import its module."
            ) from error
        model.build()
        model.load_weights(folder / "model.weights.h5")
        vocabularies = {}
        for file in folder.glob("*.vocabulary"):
            vocabularies[file.stem] = Vocabulary(0, file.stem)
            vocabularies[file.stem].load(file.read_bytes())
        tasks = json.loads((folder / "tasks.json").read_text())
        inputs, targets = (
            {name: features.from_json(task[role], vocabularies) for name, task in tasks.items()}
            for role in ("inputs", "targets")
        )
        return cls(model, inputs, targets)


def load(path):
    """The trained model of a run's folder, as a Bundle.

    Raises:
        UserError: if there is none, or it is damaged.
    """
    folder = pathlib.Path(path) / "model"
    if not (folder / "model.weights.h5").is_file():
        raise UserError(
            f"A run's folder holds a trained model. Received: {str(path)!r}, without model/. "
            f"Train one: multimodel train quickstart --out {path}"
        )
    try:
        return Bundle.load(folder)
    except (OSError, ValueError, KeyError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(
            f"A model's folder is whole. Received: {str(folder)!r} ({type(error).__name__}: {str(error)[:120]}). "
            f"Train it again."
        ) from error


def _shown(value):
    return repr(value) if len(repr(value)) < 100 else type(value).__name__
