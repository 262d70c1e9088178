"""The batch size that fits into memory, and what memory is measured by."""

import importlib
import json

import numpy as np
import pytest

import multimodel as mm
from multimodel.training import memory_at_hand as memory
from multimodel.training.batch_size import Taken, _largest, estimate
from multimodel.training.memory_at_hand import ProcessMemory
from tests import tiny_recipe

MEGABYTE = 2**20


class FakeMemory:
    """60 GB for any step, and a gigabyte more for each example, of 125 GB."""

    def __init__(self):
        self.size = 16

    def taken(self, step):
        step()
        self.size *= 2
        return 50 * 10**9, (60 + self.size) * 10**9

    def limit(self):
        return 125 * 10**9


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "history.jsonl").read_text().splitlines()]


def test_a_run_is_as_if_its_number_had_been_given(tmp_path, monkeypatch, capsys):
    """Forty examples fit into 80 % of memory, which 32 are the next multiple below of."""
    monkeypatch.setattr(importlib.import_module("multimodel.training.batch_size"), "memory_at_hand", FakeMemory)
    options = {"tasks": ["colours"], "steps": 3, "log_every": 1}
    mm.train(tiny_recipe.recipe(), tmp_path / "auto", batch_size="auto", **options)
    assert "Batch size 32: a step is estimated to take 92.00 of 125.00 GB." in capsys.readouterr().out
    assert json.loads((tmp_path / "auto" / "run.json").read_text())["settings"]["batch_size"] == 32
    mm.train(tiny_recipe.recipe(), tmp_path / "typed", batch_size=32, **options)
    assert losses(tmp_path / "auto") == losses(tmp_path / "typed")


def test_the_largest_size_by_hand():
    """1 MB an example beside 50 MB of any step, and 100 MB before the last one; the first one does not count."""
    sizes = {40: (5, 20), 80: (90, 220), 160: (100, 310)}
    steps = [Taken(size, before * MEGABYTE, peak * MEGABYTE) for size, (before, peak) in sizes.items()]
    assert estimate(steps, 320) == pytest.approx(470 * MEGABYTE)
    assert _largest(steps, 1000 * MEGABYTE, 10**6) == 840  # 850, in multiples of 40
    assert _largest(steps, 1000 * MEGABYTE, 333) == 333
    assert _largest(steps, 170 * MEGABYTE, 10**6) == 20
    assert _largest(steps, 120 * MEGABYTE, 10**6) < 1


def test_what_a_step_takes_is_measured():
    def step(megabytes):
        np.ones(megabytes * MEGABYTE, "uint8").sum()

    _, least = ProcessMemory().taken(lambda: step(1))
    for megabytes in (300, 100):  # what a larger one has freed does not count
        _, peak = ProcessMemory().taken(lambda megabytes=megabytes: step(megabytes))
        assert peak - least == pytest.approx(megabytes * MEGABYTE, rel=0.1)
    assert least < peak < ProcessMemory().limit()


@pytest.mark.parametrize("version", [1, 2])
def test_control_groups_limit_memory(version, tmp_path, monkeypatch):
    """The inner group has room for 3 GB by its own limit, and for 2 by that of the one around it."""
    kind, names = (
        ("memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"))
        if version == 1
        else ("", ("memory.max", "memory.current", "inactive_file"))
    )
    inner = tmp_path / "groups" / kind / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder, limit, usage in ((inner, 4, 1), (inner.parent, 5, 4)):
        (folder / names[0]).write_text(f"{limit * 10**9}\n")
        (folder / names[1]).write_text(f"{usage * 10**9}\n")
        (folder / "memory.stat").write_text(f"cache 7\n{names[2]} {10**9 if folder != inner else 0}\n")
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"3:cpu:/\n{0 if version == 2 else 4}:{kind}:/outer/inner\n")
    monkeypatch.setattr(memory, "PROC", tmp_path)
    monkeypatch.setattr(memory, "CONTROL_GROUPS", tmp_path / "groups")
    assert sorted(memory._room_in_control_groups()) == [2 * 10**9, 3 * 10**9]
    (inner / names[0]).write_text("max\n" if version == 2 else f"{2**62}\n")
    assert min(memory._room_in_control_groups()) == 2 * 10**9


def test_where_memory_cannot_be_measured_a_number_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "PROC", tmp_path)
    with pytest.raises(mm.UserError, match=r"batch_size='auto' elsewhere. Give a number"):
        mm.train(tiny_recipe.recipe(), tmp_path / "run", batch_size="auto")
    assert not (tmp_path / "run").exists()
