"""The memory of this process."""

import os
import pathlib
import resource
import subprocess
import sys

_STATUS = pathlib.Path("/proc/self/status")  # Linux


def resident_mb():
    """What of this process lies in memory now, in MB of 10^6 bytes."""
    if _STATUS.exists():
        return _of_status("VmRSS")
    listed = subprocess.run(["ps", "-o", "rss=", "-p", str(os.getpid())], capture_output=True, check=True)
    return round(int(listed.stdout) * 1024 / 1e6, 1)


def peak_mb():
    """The most of this process that lay in memory since it began, in MB of 10^6 bytes."""
    if _STATUS.exists():  # getrusage would count the process that started this one
        return _of_status("VmHWM")
    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6, 1)


def _of_status(name):
    """A field in kB of 1,024 bytes, such as `VmRSS:  123 kB`."""
    field = next(line for line in _STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return round(int(field.split()[1]) * 1024 / 1e6, 1)
