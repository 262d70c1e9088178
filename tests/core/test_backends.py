"""TensorFlow and JAX give the same numbers on the same weights, and the core needs neither of them by name."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from keras import ops

from multimodel.generation.generator import Generator
from tests.core import tiny
from tests.core.descriptors import ROWS, arguments, built, run

COMPUTE = """
import sys
sys.path.insert(0, {root!r})
import numpy as np
import pytest
from tests.core.test_backends import compute
np.savez(sys.argv[1], **compute())
"""

WITHOUT_TENSORFLOW = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tensorflow_text", "tensorflow_datasets"):
            raise ModuleNotFoundError("No module named " + name, name=name)
sys.meta_path.insert(0, Hidden())
sys.path.insert(0, {root!r})
import multimodel, multimodel.body, modality_nets, multimodel.generation.generator
from tests.core import tiny
print(sorted(tiny.model()(tiny.features())))
assert not any(name.partition(".")[0] == "tensorflow" for name in sys.modules)
"""


def compute():
    """Outputs of every block, net and body, of the model and of generation, with the same weights everywhere."""
    results = {
        row.name: run(built(row), *arguments(row))[0] for row in ROWS if row.name not in ("Body.small", "Body.paper")
    }
    model, batch = tiny.model(), tiny.features()
    results |= {f"model {task}": ops.convert_to_numpy(logits) for task, logits in model(batch).items()}
    for task in batch:
        inputs = {name: array for name, array in batch[task].items() if name != "targets"}
        outputs = Generator(model, task).predict_on_batch(inputs)
        results |= {f"generate {task} {name}": ops.convert_to_numpy(array) for name, array in outputs.items()}
    return results


def python(code, backend, *arguments):
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    environment = os.environ | {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-c", code.format(root=root), *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="the run on TensorFlow compares both")
def test_both_backends_agree(tmp_path):
    file = tmp_path / "other.npz"
    result = python(COMPUTE, "jax", file)
    assert result.returncode == 0, result.stderr
    here = compute()
    with np.load(file) as there:
        assert set(there.files) == set(here)
        for name, expected in here.items():
            scale = max(1.0, np.abs(expected).max())
            np.testing.assert_allclose(there[name], expected, rtol=0, atol=1e-4 * scale, err_msg=name)


@pytest.mark.skipif(keras.backend.backend() == "jax", reason="the run on TensorFlow tries it")
def test_the_core_runs_where_tensorflow_is_not_installed():
    result = python(WITHOUT_TENSORFLOW, "jax")
    assert result.returncode == 0, result.stderr
    assert "captions" in result.stdout
