"""`serve`: the process that listens."""

import logging
import socket

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from multimodel.errors import UserError
from multimodel.serving.app import make_app
from multimodel.serving.limits import Limits
from multimodel.serving.metrics import Metrics
from multimodel.serving.versions import Model

STOP_SECONDS = 25  # for requests at hand, after SIGTERM


def serve(folder, host="127.0.0.1", port=8501, name=None, limits=None):
    """Serves the newest version of an export until it is told to stop (SIGINT or SIGTERM).

    Requests at hand are answered before it ends. A newer version in the folder replaces the one that answers once it is
    loaded and warm.

    Args:
        folder: `DIR` of `DIR/1`.
        host, port: to listen on; port 0 is any free one.
        name: the model's, in addresses; the folder's if None.
        limits: Limits.

    Raises:
        UserError: if the folder holds no version that can be served, or the address is taken.
    """
    limits = limits or Limits()
    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("multimodel.serving").setLevel(logging.INFO)
    listening = _listen(host, port)
    metrics = Metrics()
    model = Model(folder, name, limits, metrics)
    address = f"http://{host}:{listening.getsockname()[1]}/v1/models/{model.name}"
    listening.listen()  # from here on clients may come
    print(f"Serving {', '.join(model.current.exported.tasks)} at {address}", flush=True)
    make_server(model, limits, metrics).run(sockets=[listening])


def make_server(model, limits, metrics):
    """A uvicorn server of a Model."""
    config = uvicorn.Config(
        make_app(model, limits, metrics),
        log_level="warning",
        http=protocol(limits.read_seconds),
        timeout_graceful_shutdown=STOP_SECONDS,
        lifespan="on",
    )
    return uvicorn.Server(config)


def _listen(host, port):
    """A socket at an address; it tells a mistake before the model is loaded."""
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(family, kind)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except (OSError, OverflowError) as error:
        raise UserError(
            f"A server listens on a free address of this machine. Received: host={host!r}, port={port} ({error}). "
            f"Choose another --port or --host."
        ) from None
    return listening


def protocol(seconds):
    """Uvicorn's HTTP/1.1, which lets go of clients that do not finish a request's header in so many seconds."""

    class Impatient(H11Protocol):
        timer = None

        def connection_made(self, transport):
            super().connection_made(transport)
            self._time()

        def data_received(self, data):
            super().data_received(data)
            self._time()

        def connection_lost(self, exc):
            super().connection_lost(exc)
            self._stop()

        def _time(self):
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop()
            elif self.timer is None:
                self.timer = self.loop.call_later(seconds, self._leave)

        def _stop(self):
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def _leave(self):
            self.timer = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return Impatient
