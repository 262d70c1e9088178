"""The wire format of TF Serving's REST interface: requests to rows of bytes, results to JSON values."""

import base64
import binascii
import json

from google.protobuf import json_format


class RefusedError(Exception):
    """A request that is not answered.

    Attributes:
        status: of HTTP, 4xx or 503 or 504.
        headers: of the response.
    """

    def __init__(self, status, message, **headers):
        super().__init__(message)
        self.status, self.headers = status, {name.replace("_", "-"): value for name, value in headers.items()}


def parse_request(body, tasks):
    """The body of a `:predict` request -> `(task, contents, by_rows)`.

    Args:
        body: bytes of `{"signature_name": task, "instances": [...]}`, the row form, or with `"inputs": [...]`, the
            column form. A value is a string, or `{"b64": base64}`; in the row form it may stand in `{"inputs": value}`,
            in the column form the list may.
        tasks: names that are there.

    Raises:
        RefusedError: 400, with the row where a row is at fault.
    """
    try:
        request = json.loads(body.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise RefusedError(400, f"JSON is UTF-8: {error.reason} at byte {error.start}") from None
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"JSON Parse error: {error}") from None
    if not isinstance(request, dict):
        raise RefusedError(400, f"A request is a JSON object. Received: {_kind(request)}.")
    task = _task_of(request, tasks)
    given = [key for key in ("instances", "inputs") if key in request]
    if len(given) != 1:
        raise RefusedError(400, f"A request has either instances or inputs. Received: {sorted(request)[:10]}.")
    by_rows = given == ["instances"]
    values = request[given[0]]
    if not by_rows and isinstance(values, dict) and set(values) == {"inputs"}:
        values = values["inputs"]
    if not isinstance(values, list) or not values:
        raise RefusedError(400, f"{given[0]} is a list of at least one value. Received: {_kind(values)}.")
    return task, [_content(value, row, by_rows) for row, value in enumerate(values)], by_rows


def _task_of(request, tasks):
    names = ", ".join(tasks)
    if "signature_name" not in request:
        raise RefusedError(400, f"signature_name says which task is asked. Received: none. There are: {names}.")
    task = request["signature_name"]
    if not isinstance(task, str) or task not in tasks:
        shown = json.dumps(task)[:100]
        raise RefusedError(400, f"Serving signature name {shown} not found in signature def. There are: {names}.")
    return task


def _content(value, row, by_rows):
    """The bytes of one value."""
    if by_rows and isinstance(value, dict) and set(value) == {"inputs"}:
        value = value["inputs"]
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise RefusedError(400, f"row {row}: text is Unicode without lone surrogates") from None
    if isinstance(value, dict) and set(value) == {"b64"} and isinstance(value["b64"], str):
        try:
            return base64.b64decode(value["b64"], validate=True)
        except (binascii.Error, ValueError):
            raise RefusedError(400, f"row {row}: b64 is not base64") from None
    raise RefusedError(400, f'row {row}: a value is a string or {{"b64": base64}}. Received: {_kind(value)}')


def response_of(rows, by_rows):
    """Rows of JSON values, `{"outputs", "scores", ...}` each, as TF Serving arranges them."""
    if by_rows:
        return {"predictions": rows}
    return {"outputs": {name: [row[name] for row in rows] for name in rows[0]}}


def rows_of(results):
    """Arrays `{name: (b, ...)}` -> a list of `{name: JSON value}`."""
    names = list(results)
    columns = [_json_values(results[name]) for name in names]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _json_values(array):
    if array.dtype == object:
        flat = [text.decode() for text in array.reshape(-1)]
        width = array.size // len(array)
        return flat if array.ndim == 1 else [flat[i : i + width] for i in range(0, len(flat), width)]
    return array.tolist()


def status_of(versions):
    """`{version: (state, error message)}` -> the JSON of a model's status."""
    return {
        "model_version_status": [
            {
                "version": str(version),
                "state": state,
                "status": {"error_code": "UNKNOWN" if message else "OK", "error_message": message},
            }
            for version, (state, message) in sorted(versions.items(), reverse=True)
        ]
    }


def metadata_of(name, version, signature_defs):
    """The JSON of a model's metadata."""
    signatures = {
        task: json_format.MessageToDict(
            signature, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        for task, signature in signature_defs.items()
    }
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(version)},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }


def _refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


def _kind(value):
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return "an empty list" if value == [] else kinds.get(type(value), "a number")
