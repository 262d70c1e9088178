"""Exported: a SavedModel of ours, used from Python as a run is."""

import json
import pathlib
import re

import tensorflow as tf
import tensorflow_text  # noqa: F401, whose operations the graphs hold
from tensorflow.core.protobuf import saved_model_pb2

from multimodel.errors import UserError
from multimodel.export.predictor import Prediction, Predictor, predictions_of
from multimodel.quiet import no_stderr
from multimodel.signature import Signature
from multimodel.tasks import features
from multimodel.tasks.vocabulary import Vocabulary

ABOUT = pathlib.Path("assets.extra", "multimodel.json")
CHUNK = 64
# Operations that reach beyond the graph: to Python, or to files other than the export's own variables and tables.
FORBIDDEN = re.compile(r"PyFunc|ReadFile|WriteFile|MatchingFiles|TFRecord|TextLineDataset|LoadLibrary|Socket|Rpc")


class Exported(Predictor):
    """The graphs of an export, behind Python's readers: it answers what the run that it was made from answers.

    Args:
        folder: of one version, `DIR/1`.

    Attributes:
        tasks: `{name: Signature}`.
        inputs: `{name: feature}`.
        signature_defs: `{name: SignatureDef}`, TensorFlow's description of each graph.

    Raises:
        UserError: if the folder is no whole export of ours, or its graphs hold operations that ours never do.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        try:
            about = json.loads((self.folder / ABOUT).read_text(encoding="utf-8"))
            self.tasks = {name: Signature.from_json(values) for name, values in about["tasks"].items()}
            names = {values["vocabulary"] for values in about["inputs"].values() if "vocabulary" in values}
            vocabularies = {name: Vocabulary(0, name) for name in names}  # the graphs have their own
            self.inputs = {name: features.from_json(values, vocabularies) for name, values in about["inputs"].items()}
            graphs = saved_model_pb2.SavedModel.FromString((self.folder / "saved_model.pb").read_bytes())
            _check_operations(graphs)
            self.signature_defs = dict(graphs.meta_graphs[0].signature_def)
            with no_stderr():  # tensorflow-text notes each model that normalises nothing
                self._loaded = tf.saved_model.load(self.folder)
        except UserError:
            raise
        except (OSError, ValueError, KeyError, TypeError, tf.errors.OpError) as error:
            raise UserError(
                f"An export's folder is whole. Received: {str(folder)!r} ({type(error).__name__}: "
                f"{str(error)[:120]}). Export the run again."
            ) from error

    def answer(self, task, values, search, n_best):
        if n_best != 1 or search not in (None, self.tasks[task].search):
            raise UserError(
                f"An export searches as it was exported. Received: search={search}, n_best={n_best}. "
                f"Ask the run, or export it with this search."
            )
        contents = [self.inputs[task].raw(value) for value in values]
        return [
            prediction
            for start in range(0, len(contents), CHUNK)
            for prediction in self._answer_contents(task, contents[start : start + CHUNK])
        ]

    def _answer_contents(self, task, contents):
        """Predictions of raw strings; the graph names one bad row at a time."""
        errors: dict[int, Prediction] = {}
        rows = list(range(len(contents)))
        answered: list[Prediction] = []
        while rows and not answered:
            try:
                results = self.run(task, [contents[row] for row in rows])
                outputs = [[text.decode()] for text in results["outputs"]]
                answered = predictions_of(outputs, results["scores"][:, None])
            except UnreadableRowError as error:
                errors[rows.pop(error.row)] = Prediction(None, None, error.reason)
        good = dict(zip(rows, answered, strict=True))
        return [errors.get(row) or good[row] for row in range(len(contents))]

    def run(self, task, contents):
        """The graph of a task over raw strings, a list of bytes.

        Returns:
            `{"outputs" (b,) bytes, "scores" (b,)}`, and of label tasks `"probabilities"` and `"labels" (b, classes)`.

        Raises:
            UnreadableRowError: for the first content that cannot be read.
        """
        try:
            results = self._loaded.signatures[task](inputs=tf.constant(contents, tf.string))
        except tf.errors.InvalidArgumentError as error:
            named = re.search(r"row (\d+): ([^\]]*)", str(error))
            if not named:
                raise
            raise UnreadableRowError(int(named[1]), named[2].strip()) from None
        return {name: values.numpy() for name, values in results.items()}


class UnreadableRowError(Exception):
    """One row of a batch that the graph cannot read.

    Attributes:
        row: its place in the batch.
        reason: a line.
    """

    def __init__(self, row, reason):
        super().__init__(f"row {row}: {reason}")
        self.row, self.reason = row, reason


def versions_of(folder):
    """The numbers of the versions in an export's folder, those whose SavedModel is whole."""
    if not pathlib.Path(folder).is_dir():
        return []
    numbered = (path for path in pathlib.Path(folder).iterdir() if path.name.isdecimal())
    return sorted(int(path.name) for path in numbered if (path / "saved_model.pb").is_file())


def _check_operations(graphs):
    """A SavedModel is a program: of one from elsewhere, refuse what could reach files or Python."""
    for meta_graph in graphs.meta_graphs:
        library = meta_graph.graph_def.library.function
        for node in [*meta_graph.graph_def.node, *(node for function in library for node in function.node_def)]:
            if FORBIDDEN.search(node.op):
                raise UserError(
                    f"An export's graphs compute alone. Received: an operation {node.op!r}. "
                    f"It was not made by multimodel export: do not use it."
                )
