"""Export: a SavedModel with one signature a task, raw strings in, text and label names out."""

import dataclasses
import importlib.metadata
import json
import pathlib
import shutil

import keras
import tensorflow as tf

from multimodel.errors import UserError
from multimodel.export.exported import ABOUT, Exported, versions_of
from multimodel.export.parity import compare
from multimodel.export.readers import read_inputs
from multimodel.export.warmup import write_warmup_requests
from multimodel.generation.generator import Generator
from multimodel.tasks import features
from multimodel.tasks.batches import features_of

VERSIONS = ("multimodel", "keras", "tensorflow", "tensorflow-text")


class TaskGraphs(tf.Module):
    """What a SavedModel holds: a function for each task, and the variables and tokenizers that these need.

    Args:
        bundle: a Bundle.
        searches: `{task: Search}` of the tasks that it answers.
    """

    def __init__(self, bundle, searches):
        super().__init__()
        parts = bundle.model.parts_of(searches)
        self.weights = [variable.value for part in parts for variable in part.variables]
        roles = [role[task] for task in searches for role in (bundle.inputs, bundle.targets)]
        self.tokenizers = [vocabulary.tokenizer for vocabulary in features.vocabularies_of(roles)]
        self.endpoints = {task: _signature(bundle, task, search) for task, search in searches.items()}


def _signature(bundle, task, search):
    """The function of one task: `inputs (b,)` strings -> `outputs`, `scores`, and of labels all `probabilities`."""
    inputs, targets = bundle.inputs[task], bundle.targets[task]
    generator = Generator(bundle.model, task, search)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def answer(inputs_as_strings):
        chosen = generator(features_of(*read_inputs(inputs, inputs_as_strings)))
        ids, scores = chosen["ids"][:, 0], chosen["score"][:, 0]
        if targets.modality == "text":
            return {"outputs": targets.vocabulary.decode(ids), "scores": scores}
        names = tf.constant(targets.names)
        labels = tf.tile(names[None], [tf.size(inputs_as_strings), 1])
        outputs = {"outputs": tf.gather(names, ids[:, 0]), "scores": scores}
        return outputs | {"probabilities": chosen["probabilities"], "labels": labels}

    return answer


def export(bundle, folder, values, search=None):
    """Writes `folder/N`, N one above the versions that are there: a SavedModel, proven equal to the model.

    It appears once it is whole and has answered held-out examples as the model does.

    Args:
        bundle: a Bundle.
        folder: of the export.
        values: `{task: canonical values}` of the tasks to export: the held-out inputs for the proof.
        search: changes of the tasks' own Search, such as `{"beams": 4}`, or None.

    Returns:
        The new folder, and the proof: `{task: {"examples", "equal", "largest_score_difference"}}`.

    Raises:
        UserError: on another backend than TensorFlow, or if the folder cannot be written.
        DisagreementError: if the reloaded graphs disagree with the model; the draft is removed.
    """
    if keras.backend.backend() != "tensorflow":
        raise UserError(
            f"Export is TensorFlow's. Received: KERAS_BACKEND={keras.backend.backend()!r}. "
            f"A run of any backend can be exported: KERAS_BACKEND=tensorflow multimodel export RUN DIR"
        )
    searches = {task: bundle.search(task, **search or {}) for task in values}
    folder = pathlib.Path(folder)
    version = max(versions_of(folder), default=0) + 1
    draft = folder / f".{version}.draft"
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
    except OSError as error:
        raise UserError(
            f"An export's folder can be written. Received: {str(folder)!r} ({error.strerror}). Choose another one."
        ) from None
    try:
        graphs = TaskGraphs(bundle, searches)
        tf.saved_model.save(graphs, draft, graphs.endpoints)
        (draft / ABOUT).parent.mkdir(exist_ok=True)
        about = _about(bundle, searches)
        (draft / ABOUT).write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")
        proof = compare(bundle, Exported(draft), values, searches)
        (draft / ABOUT).write_text(
            json.dumps(about | {"parity": proof}, indent=1, ensure_ascii=False), encoding="utf-8"
        )
        write_warmup_requests(draft, folder.name, {task: bundle.inputs[task].raw(v[0]) for task, v in values.items()})
        draft.rename(folder / str(version))
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder / str(version), proof


def _about(bundle, searches):
    """What `multimodel.json` says: tasks with their modalities and limits, features, versions."""
    tasks = {task: dataclasses.replace(bundle.tasks[task], search=search) for task, search in searches.items()}
    return {
        "tasks": {task: signature.to_json() for task, signature in tasks.items()},
        "inputs": {task: features.to_json(bundle.inputs[task]) for task in tasks},
        "versions": {package: importlib.metadata.version(package) for package in VERSIONS},
    }
