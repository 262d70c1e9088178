"""Versions: the newest version of an export's folder, loaded, warmed up, and replaced when a newer one comes."""

import asyncio
import concurrent.futures
import functools
import logging
import pathlib

import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2

from multimodel.errors import UserError
from multimodel.export.exported import Exported, versions_of
from multimodel.serving.batching import Batcher, Queue

logger = logging.getLogger("multimodel.serving")
THREADS = 2


class Version:
    """One version that answers.

    Attributes:
        number: of the version.
        exported: an Exported.
        batchers: `{task: Batcher}`.
    """

    def __init__(self, number, exported, batchers):
        self.number, self.exported, self.batchers = number, exported, batchers


class Model:
    """An export's folder that is served.

    Args:
        folder: `DIR` of `DIR/1`.
        name: in addresses; the folder's own if None.
        limits: Limits.
        metrics: Metrics.

    Attributes:
        current: the Version that answers.
        states: `{version: (state, error message)}`, states as TF Serving names them.

    Raises:
        UserError: if the folder holds no version, or the newest one cannot be loaded.
    """

    def __init__(self, folder, name, limits, metrics):
        self.folder = pathlib.Path(folder)
        self.name = name or self.folder.resolve().name
        self.states: dict[int, tuple[str, str]] = {}
        self.queue = Queue(limits.rows)
        self._limits, self._metrics = limits, metrics
        self._executor = concurrent.futures.ThreadPoolExecutor(THREADS)
        self._failed: dict[int, float] = {}
        self.current = self._load(newest(self.folder))
        self._start(self.current)

    def _load(self, number):
        """A version, after it has answered its warm-up requests."""
        folder = self.folder / str(number)
        exported = Exported(folder)
        for task, contents in warmup_requests(folder):
            exported.run(task, contents)
            exported.run(task, contents * self._limits.batch)
        batchers = {
            task: Batcher(
                functools.partial(exported.run, task),
                self._limits.batch,
                self.queue,
                self._executor,
                self._metrics.batch_rows.labels(task).observe,
            )
            for task in exported.tasks
        }
        return Version(number, exported, batchers)

    def _start(self, version):
        self.current = version
        self.states[version.number] = "AVAILABLE", ""
        self._metrics.version.set(version.number)
        logger.info("serving version %d of %s", version.number, self.name)

    async def watch(self, seconds=2.0):
        """Replaces the version whenever the folder's newest one is another; one that fails is told and passed over."""
        while True:
            await asyncio.sleep(seconds)
            await self.update()

    async def update(self):
        """Loads the folder's newest version, unless it is the one that answers, or has failed as it is."""
        numbers = [number for number in versions_of(self.folder) if self._failed.get(number) != self._age(number)]
        if not numbers or numbers[-1] == self.current.number:
            return
        number, age = numbers[-1], self._age(numbers[-1])
        self.states[number] = "LOADING", ""
        try:
            version = await asyncio.to_thread(self._load, number)
        except Exception as error:  # whatever is wrong with it, the one that answers goes on
            self._failed[number] = age
            self.states[number] = "END", f"{type(error).__name__}: {error}"[:300]
            logger.warning("version %d cannot be served: %s", number, error)
            return
        former = self.current
        self._start(version)
        for batcher in former.batchers.values():
            await batcher.finish()
        self.states[former.number] = "END", ""

    def _age(self, number):
        try:
            return (self.folder / str(number) / "saved_model.pb").stat().st_mtime
        except OSError:
            return 0.0


def newest(folder):
    """The number of the newest version in an export's folder.

    Raises:
        UserError: if there is none.
    """
    numbers = versions_of(folder)
    if not numbers:
        raise UserError(
            f"A folder to serve holds a numbered version. Received: {str(folder)!r}. "
            f"Make one: multimodel export RUN {folder}"
        )
    return numbers[-1]


def warmup_requests(folder):
    """Yields `(task, contents)` of a version's warm-up requests."""
    file = folder / "assets.extra" / "tf_serving_warmup_requests"
    if file.is_file():
        for record in tf.data.TFRecordDataset(str(file)):
            request = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request
            yield request.model_spec.signature_name, list(request.inputs["inputs"].string_val)
