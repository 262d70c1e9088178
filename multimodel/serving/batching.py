"""Batching: rows of all clients, answered together."""

import asyncio
import collections

from multimodel.export.exported import UnreadableRowError
from multimodel.serving.wire import RefusedError, rows_of


class Queue:
    """How many rows wait, of all tasks, and how many may.

    Args:
        most: rows.
    """

    def __init__(self, most):
        self.most, self.waiting = most, 0


class Batcher:
    """The rows of one task: while a batch is computed the next one gathers, up to so many rows.

    Args:
        run: a function of a list of bytes, which gives `{name: (b, ...)}` or raises an UnreadableRowError.
        size: rows of a batch at most.
        queue: a Queue.
        executor: where `run` runs.
        observe: is told the rows of each batch.
    """

    def __init__(self, run, size, queue, executor, observe=lambda rows: None):
        self._run, self._size, self._queue, self._executor, self._observe = run, size, queue, executor, observe
        self._rows: collections.deque = collections.deque()
        self._worker: asyncio.Task | None = None

    async def answer(self, contents):
        """Rows of JSON values for a list of bytes.

        Raises:
            RefusedError: 429 if the queue is full, 400 if a row cannot be read; the message names it.
        """
        if len(contents) > self._queue.most:
            raise RefusedError(400, f"A request has at most {self._queue.most} rows. Received: {len(contents)}.")
        if self._queue.waiting + len(contents) > self._queue.most:
            message = f"Too many rows wait: {self._queue.waiting} of {self._queue.most} at most. Try again later."
            raise RefusedError(429, message, Retry_After="1")
        loop = asyncio.get_running_loop()
        futures = [loop.create_future() for _ in contents]
        self._rows.extend(zip(contents, futures, strict=True))
        self._queue.waiting += len(contents)
        if self._worker is None:
            self._worker = loop.create_task(self._work())
        try:
            return await asyncio.gather(*futures)
        except UnreadableRowError as error:
            row = next(row for row, future in enumerate(futures) if _failed(future))
            raise RefusedError(400, f"row {row}: {error.reason}") from None
        finally:
            for future in futures:  # a request that fails, or whose client has gone, needs no more work
                future.cancel()

    async def finish(self):
        """Waits until no row is left."""
        if self._worker is not None:
            await asyncio.wait([self._worker])

    async def _work(self):
        """Answers until no row is left."""
        try:
            while self._rows:
                taken = [self._rows.popleft() for _ in range(min(self._size, len(self._rows)))]
                self._queue.waiting -= len(taken)
                batch = [(content, future) for content, future in taken if not future.done()]
                if batch:
                    await self._answer_batch(batch)
        finally:
            self._worker = None

    async def _answer_batch(self, batch):
        """Without rows that turn out unreadable, and without the other rows of their requests."""
        while batch:
            self._observe(len(batch))
            contents = [content for content, _ in batch]
            try:
                results = await asyncio.get_running_loop().run_in_executor(self._executor, self._run, contents)
            except UnreadableRowError as error:
                batch[error.row][1].set_exception(error)
                await asyncio.sleep(0)  # lets its request cancel the others
                await asyncio.sleep(0)
                batch = [(content, future) for content, future in batch if not future.done()]
            except Exception as error:
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                return
            else:
                for (_, future), row in zip(batch, rows_of(results), strict=True):
                    if not future.done():
                        future.set_result(row)
                return


def _failed(future):
    return future.done() and not future.cancelled() and future.exception() is not None
