"""The memory of this process, as Linux and as other systems tell it."""

import pathlib
import subprocess
import sys

import numpy as np
import psutil
import pytest

from multimodel import memory


@pytest.fixture(params=["proc", "others"])
def system(request, monkeypatch):
    if request.param == "others":
        monkeypatch.setattr(memory, "_STATUS", pathlib.Path("/nowhere"))


def test_resident_memory_is_what_psutil_finds(system):
    assert memory.resident_mb() == pytest.approx(psutil.Process().memory_info().rss / 1e6, rel=0.05)


def test_the_peak_stays_when_memory_is_given_back(system):
    before = memory.peak_mb()
    more = np.ones(int(before - memory.resident_mb()) * 125_000 + 25_000_000)  # 8 bytes each
    held = memory.resident_mb()
    del more
    assert memory.peak_mb() >= held - 5
    assert memory.resident_mb() < held - 150


def test_the_peak_is_of_this_process_alone():
    """On Linux a new process counts what its parent had, as getrusage tells it."""
    child = "from multimodel.memory import peak_mb; print(peak_mb())"
    parent = "import subprocess, sys, numpy; held = numpy.ones(50_000_000); "
    parent += f"subprocess.run([sys.executable, '-c', {child!r}])"
    result = subprocess.run([sys.executable, "-c", parent], capture_output=True, text=True, check=True)
    assert float(result.stdout) < 100
