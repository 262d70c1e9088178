"""Bundle: a trained model with all that it takes to use it on raw inputs."""

import json
import pathlib
import shutil

import numpy as np

import modality_nets  # noqa: F401, its classes must be known before they are read
import multimodel.body  # noqa: F401
from multimodel.backend import predict_in_chunks
from multimodel.errors import UserError
from multimodel.export.predictor import Prediction, Predictor, predictions_of
from multimodel.generation.generator import Generator
from multimodel.model import MultiModel
from multimodel.tasks import features
from multimodel.tasks.batches import features_of
from multimodel.tasks.vocabulary import Vocabulary


class Bundle(Predictor):
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

    def answer(self, task, values, search, n_best):
        feature = self.inputs[task]
        arrays, lengths = feature.encode(values)
        lengths = None if lengths is None else np.asarray(lengths)
        ids, scores = self.generate(task, np.asarray(arrays), lengths, search, n_best)
        outputs = np.array(self.decode(task, ids.reshape(-1, ids.shape[-1])), object).reshape(scores.shape)
        predictions = predictions_of(outputs.tolist(), scores)
        if lengths is not None:
            for row in np.flatnonzero(feature.refused(lengths)):
                message = f"too long. Received: {lengths[row]}, of {feature.shape[0]} at most"
                predictions[row] = Prediction(None, None, message)
        return predictions

    def generate(self, task, inputs, lengths, search=None, n_best=1):
        """Ids `(b, n_best, m)` and scores `(b, n_best)` for encoded inputs `(b, ...)` and their lengths `(b,)` or None.

        Args:
            search: a Search; the task's own if None. Each one is compiled when it is first used.
        """
        key = task, search, n_best
        if key not in self._generators:
            self._generators[key] = Generator(self.model, task, search, n_best)
        outputs = predict_in_chunks(self._generators[key], features_of(inputs, lengths))
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
