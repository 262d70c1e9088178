"""Ctrl-C and SIGTERM during a run."""

import os
import signal
import socket
import threading

import keras

GRACE = 25  # seconds from SIGTERM until the process ends, whatever it is at


class Interrupts:
    """While it is entered, Ctrl-C and SIGTERM end `fit` after the step at hand, a second Ctrl-C at once.

    Beside `fit` they end the run at once: KeyboardInterrupt, or SystemExit with code 143. So does SIGTERM after GRACE
    seconds if a step takes longer than that.

    Args:
        reporter: is told of a signal.

    Attributes:
        callback: stops `fit`; to be put behind those that keep what the step gave.
        fitting: whether `fit` runs; set by whoever runs it.
        received: the signal that was sent while it ran, or None.
        on_timeout: called before a step that takes too long is cut off.
    """

    def __init__(self, reporter):
        self._reporter = reporter
        self._ended = threading.Event()
        self.fitting, self.received = False, None
        self.on_timeout = lambda: None
        self.callback = keras.callbacks.LambdaCallback(on_train_batch_end=self._stop_if_asked)

    def __enter__(self):
        self._handlers = {}
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
            # Python runs its handlers between two steps alone; the number of a signal comes through here at once.
            self._reading, self._writing = socket.socketpair()
            self._writing.setblocking(False)
            self._former_writing = signal.set_wakeup_fd(self._writing.fileno(), warn_on_full_buffer=False)
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *error):
        self._ended.set()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if self._handlers:
            signal.set_wakeup_fd(self._former_writing)
            self._writing.close()

    def _ask(self, number, frame):
        if not self.fitting or self.received == signal.SIGINT == number:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        if self.received != signal.SIGTERM:
            self.received = number

    def _stop_if_asked(self, batch, logs):
        if self.received:
            self.callback.model.stop_training = True

    def _watch(self):
        """Tells of signals, and ends the process GRACE seconds after SIGTERM.

        In a thread of its own: the main one may be amid a step, or amid a line that it prints.
        """
        with self._reading:
            while sent := self._reading.recv(1):
                if self.fitting:
                    self._reporter.stopping(sent[0] == signal.SIGINT)
                if sent[0] == signal.SIGTERM and not self._ended.wait(GRACE):
                    self.on_timeout()
                    os._exit(128 + signal.SIGTERM)
