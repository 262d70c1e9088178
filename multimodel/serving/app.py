"""The web application: TF Serving's REST interface, health and metrics."""

import asyncio
import contextlib
import logging
import time
from typing import Any

import prometheus_client
from fastapi import FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException

from multimodel.serving.wire import RefusedError, metadata_of, parse_request, response_of, status_of

logger = logging.getLogger("multimodel.serving")
MB = 2**20
NAME = Path(description="The model's name.")
VERSION = Path(description="Its version.", pattern=r"^\d{1,18}$")


def make_app(model, limits, metrics):
    """The application over a Model."""

    @contextlib.asynccontextmanager
    async def watching(app):
        watch = asyncio.create_task(model.watch())
        yield
        watch.cancel()

    app = FastAPI(title="MultiModel", description="TF Serving's REST interface.", lifespan=watching)
    bodies = Bodies(limits)
    errors: dict[int | str, dict[str, Any]] = {
        status: {"description": text, "content": ERROR_CONTENT} for status, text in ERRORS.items()
    }

    @app.get("/health", responses={503: errors[503]})
    async def health():
        """Whether requests are answered."""
        return {"status": "ok", "version": model.current.number}

    @app.get("/metrics", response_class=Response)
    async def measured():
        """Counters, in Prometheus' text format."""
        metrics.queued.set(model.queue.waiting)
        return Response(metrics.text(), media_type=prometheus_client.CONTENT_TYPE_LATEST)

    @app.get("/v1/models/{name}", responses={404: errors[404]})
    async def status(name: str = NAME):
        """States of the model's versions."""
        require(name)
        return status_of(model.states)

    @app.get("/v1/models/{name}/versions/{version}", responses={400: errors[400], 404: errors[404]})
    async def status_of_version(name: str = NAME, version: str = VERSION):
        """The state of one version."""
        require(name)
        states = {number: state for number, state in model.states.items() if number == int(version)}
        if not states:
            raise RefusedError(404, f"Could not find version {version} of model {name}")
        return status_of(states)

    @app.get("/v1/models/{name}/metadata", responses={404: errors[404]})
    async def metadata(name: str = NAME):
        """Inputs and outputs of each task."""
        require(name)
        return metadata_of(name, model.current.number, model.current.exported.signature_defs)

    @app.get("/v1/models/{name}/versions/{version}/metadata", responses={400: errors[400], 404: errors[404]})
    async def metadata_of_version(name: str = NAME, version: str = VERSION):
        """The same, of the version that answers."""
        require(name, version)
        return metadata_of(name, model.current.number, model.current.exported.signature_defs)

    @app.post("/v1/models/{name}:predict", responses=errors, openapi_extra=BODY)
    async def predict(request: Request, name: str = NAME):
        """Answers raw inputs of one task: text, encoded pictures, WAV files."""
        return await answer(request, name)

    @app.post("/v1/models/{name}/versions/{version}:predict", responses=errors, openapi_extra=BODY)
    async def predict_by_version(request: Request, name: str = NAME, version: str = VERSION):
        """The same, if this version answers."""
        return await answer(request, name, version)

    def require(name, version=None):
        if name != model.name:
            raise RefusedError(404, f"Could not find model {name}. There is: {model.name}")
        if version is not None and int(version) != model.current.number:
            raise RefusedError(404, f"Version {version} of model {name} does not answer: {model.current.number} does")

    async def answer(request, name, version=None):
        task, code, begin = "", 500, time.perf_counter()
        try:
            require(name, version)
            async with bodies.read(request) as body:
                begin, current = time.perf_counter(), model.current
                named, contents, by_rows = parse_request(body, current.exported.tasks)
                task = named
                del body
                async with asyncio.timeout(limits.answer_seconds):
                    rows = await current.batchers[task].answer(contents)
            code = 200
            return JSONResponse(response_of(rows, by_rows))
        except TimeoutError:
            code = 504
            raise RefusedError(504, f"No answer within {limits.answer_seconds:g} s. Send fewer rows.") from None
        except RefusedError as error:
            code = error.status
            raise
        finally:
            metrics.requests.labels(task, str(code)).inc()
            if code == 200:
                metrics.seconds.labels(task).observe(time.perf_counter() - begin)

    @app.exception_handler(RefusedError)
    async def refuse(request, error):
        return JSONResponse({"error": str(error)}, error.status, error.headers)

    @app.exception_handler(HTTPException)
    async def refuse_address(request, error):
        return JSONResponse(
            {"error": f"{error.detail}: {request.method} {request.url.path}"}, error.status_code, error.headers
        )

    @app.exception_handler(RequestValidationError)
    async def refuse_parameter(request, error):
        return JSONResponse({"error": f"Malformed request: {error.errors()[0]['msg']}"}, 400)

    @app.exception_handler(Exception)
    async def fail(request, error):
        logger.exception("a request failed", exc_info=error)
        return JSONResponse({"error": "internal error; the server's log has more"}, 500)

    return app


class Bodies:
    """Reads requests' bodies, no larger than they may be, one by one and all together, and not for ever.

    Args:
        limits: Limits.
    """

    def __init__(self, limits):
        self._limits, self._held = limits, 0

    @contextlib.asynccontextmanager
    async def read(self, request):
        """The body of a request, which counts as held until it is answered.

        Raises:
            RefusedError: 413 if it is too large, by what its header says before it is read; 408 if it comes too slowly;
                503 if all bodies together are too large.
        """
        chunks: list[bytes] = []
        size, closing = 0, {"Connection": "close"}
        most = self._limits.body_mb * MB
        too_large = RefusedError(413, f"A request has at most {self._limits.body_mb:g} MiB.", **closing)
        length = request.headers.get("content-length", "0")
        if length.isdecimal() and int(length) > most:
            if "expect" not in request.headers:  # who sends at once would see a broken pipe instead of the answer
                await self._pass_over(request)
            raise too_large
        try:
            async with asyncio.timeout(self._limits.read_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    self._held += len(chunk)
                    chunks.append(chunk)
                    if size > most:
                        raise too_large
                    if self._held > self._limits.held_mb * MB:
                        raise RefusedError(503, "Too many bytes wait. Try again later.", Retry_After="1", **closing)
        except TimeoutError:
            self._held -= size
            message = f"A request's body comes within {self._limits.read_seconds:g} s. Received: {size} bytes."
            raise RefusedError(408, message, **closing) from None
        except BaseException:
            self._held -= size
            raise
        try:
            yield b"".join(chunks)
        finally:
            self._held -= size

    async def _pass_over(self, request):
        """Reads a body without keeping it, for as long as one may take."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limits.read_seconds):
                async for _ in request.stream():
                    pass


ERRORS = {
    400: "The request is malformed; where a row is at fault, the message begins with `row N:`.",
    404: "There is no such model or version.",
    408: "The body came too slowly.",
    413: "The body is too large.",
    429: "The queue is full; `Retry-After` says when to try again.",
    503: "Too much waits, or the server stops.",
    504: "No answer in time.",
}
ERROR_CONTENT = {
    "application/json": {
        "schema": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    }
}
VALUE = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"b64": {"type": "string", "format": "byte"}},
            "required": ["b64"],
            "additionalProperties": False,
        },
    ]
}
VALUES = {"type": "array", "items": VALUE, "minItems": 1}
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "signature_name": {"type": "string", "description": "The task."},
                        "instances": VALUES,
                        "inputs": VALUES,
                    },
                    "required": ["signature_name"],
                },
            }
        },
    }
}
