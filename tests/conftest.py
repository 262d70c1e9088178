"""Every test run builds its data in a cache of its own."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    os.environ["MULTIMODEL_CACHE"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory, cache):
    """Two steps of the whole quickstart, by its own file: the run's folder and what was printed."""
    folder = tmp_path_factory.mktemp("quickstart") / "run"
    command = [sys.executable, "recipes/quickstart.py", "--out", str(folder), "--steps", "2", "--log-every", "1"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


@pytest.fixture(scope="session")
def hearing_run(tmp_path_factory, cache):
    """A run of two steps of `tests.hearing_recipe`, its Bundle, and canonical values of its test splits."""
    from multimodel import load
    from multimodel.cli import run_command
    from multimodel.tasks.examples import held_out_inputs
    from tests import hearing_recipe

    folder = tmp_path_factory.mktemp("hearing") / "run"
    assert run_command(["train", hearing_recipe.__file__, "--out", str(folder), "--steps", "2"]) == 0
    return folder, load(folder), held_out_inputs(hearing_recipe.recipe().mixture.tasks)


@pytest.fixture(scope="session")
def hearing_export(tmp_path_factory, hearing_run):
    """Its export's folder, and the proof."""
    from multimodel.export.saved_model import export

    folder = tmp_path_factory.mktemp("export") / "tiny"
    version, proof = export(hearing_run[1], folder, hearing_run[2])
    assert version == folder / "1"
    return folder, proof


@pytest.fixture(scope="session")
def hearing_loaded(hearing_export):
    """The export, as `multimodel.load` reads it."""
    from multimodel import load

    return load(hearing_export[0])
