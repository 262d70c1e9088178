"""How much memory there is, and how much a step takes: of this process, or of its GPU."""

import ctypes
import gc
import pathlib
import re

import keras

from multimodel.errors import UserError

PROC, CONTROL_GROUPS = pathlib.Path("/proc"), pathlib.Path("/sys/fs/cgroup")


class ProcessMemory:
    """Memory of this process, on Linux with glibc. Limits are those of its control groups and of the machine."""

    def taken(self, step):
        """Calls `step`: bytes that there were before it, and most bytes that there were while it ran.

        TensorFlow keeps what earlier steps took. What there is before it is then not known, and 0.
        """
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # else what was freed still counts
        before = 0 if keras.backend.backend() == "tensorflow" else _kilobytes(PROC / "self/status", "VmRSS")
        (PROC / "self/clear_refs").write_text("5")  # the high-water mark begins anew
        step()
        return before, _kilobytes(PROC / "self/status", "VmHWM")

    def limit(self):
        """Bytes that this process may have, those that it has included."""
        free = min([_kilobytes(PROC / "meminfo", "MemAvailable"), *_room_in_control_groups()])
        return _kilobytes(PROC / "self/status", "VmRSS") + free


class TensorFlowGpuMemory:
    """Memory of TensorFlow's first GPU."""

    def taken(self, step):
        import tensorflow as tf

        before = tf.config.experimental.get_memory_info("GPU:0")["current"]
        tf.config.experimental.reset_memory_stats("GPU:0")
        step()
        return before, tf.config.experimental.get_memory_info("GPU:0")["peak"]

    def limit(self):
        from tensorflow.python.client import device_lib

        return next(device.memory_limit for device in device_lib.list_local_devices() if device.device_type == "GPU")


class JaxGpuMemory:
    """Memory of JAX's first GPU. Its high-water mark cannot be set back: steps are to grow from call to call."""

    def taken(self, step):
        before = self._statistics()["bytes_in_use"]
        step()
        return before, self._statistics()["peak_bytes_in_use"]

    def limit(self):
        return self._statistics()["bytes_limit"]

    def _statistics(self):
        import jax

        return jax.devices()[0].memory_stats()


def memory_at_hand():
    """The memory that training is limited by.

    Raises:
        UserError: if it cannot be measured.
    """
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        if jax.default_backend() == "gpu":
            return JaxGpuMemory()
    elif backend == "tensorflow":
        import tensorflow as tf

        if tf.config.list_physical_devices("GPU"):
            return TensorFlowGpuMemory()
    if not (PROC / "self/clear_refs").exists() or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        raise UserError(
            "Memory can be measured on a GPU, and on Linux with glibc. Received: batch_size='auto' elsewhere. "
            "Give a number."
        )
    return ProcessMemory()


def _kilobytes(file, name):
    """Bytes, from a line such as `VmRSS:   123 kB`."""
    return 1024 * int(re.search(rf"^{name}:\s+(\d+) kB", file.read_text(), re.MULTILINE)[1])  # type: ignore[index]


def _room_in_control_groups():
    """Bytes that each control group above this process has left, of both versions; none where nothing is limited."""
    room = []
    for line in (PROC / "self/cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds in ("", "memory"):
            own = CONTROL_GROUPS / kinds / path.lstrip("/")
            room += [_room(folder) for folder in (own, *own.parents) if folder.is_relative_to(CONTROL_GROUPS / kinds)]
    return [bytes_ for bytes_ in room if bytes_ is not None]


def _room(folder):
    """Bytes that one control group has left, what it could drop of files that were read included; None for no limit."""
    for limit, usage, name in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        if (folder / limit).is_file() and (folder / limit).read_text().strip() != "max":
            files = re.search(rf"^{name} (\d+)", (folder / "memory.stat").read_text(), re.MULTILINE)
            used = int((folder / usage).read_text()) - int(files[1] if files else 0)
            return int((folder / limit).read_text()) - used
    return None
