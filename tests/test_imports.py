"""Imports point one way, and the core imports Keras alone."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
CORE = ["search", "signature", "model", "generation", "body"]
ALLOWED = {
    "multimodel.errors": set(),
    "multimodel.quiet": set(),
    "multimodel.memory": set(),
    "multimodel.search": {"multimodel.errors"},
    "multimodel.signature": {"multimodel.search"},
    "multimodel.backend": set(),
    "multimodel.body": {"multimodel.backend"},
    "modality_nets": set(),
    "multimodel.model": {"multimodel.body", "multimodel.signature"},
    "multimodel.generation": {"multimodel.model", "multimodel.body", "multimodel.backend", "multimodel.errors"},
    "multimodel.tasks": {"multimodel.signature", "multimodel.search", "multimodel.errors", "multimodel.quiet"},
    "multimodel.export": {
        "multimodel.backend",
        "multimodel.tasks",
        "multimodel.generation",
        "multimodel.model",
        "multimodel.body",
        "multimodel.signature",
        "multimodel.errors",
        "multimodel.quiet",
        "modality_nets",
    },
    "multimodel.serving": {"multimodel.export", "multimodel.errors"},
    "multimodel.training": {
        "multimodel.export",
        "multimodel.tasks",
        "multimodel.generation",
        "multimodel.model",
        "multimodel.body",
        "multimodel.backend",
        "multimodel.errors",
        "multimodel.memory",
        "modality_nets",
    },
    "recipes": {"multimodel", "multimodel.tasks", "modality_nets"},
}


def files_of(name):
    path = ROOT / name.replace(".", "/")
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def imports_of(file):
    """Modules that a file imports anywhere, as dotted names."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module)
    return names


def own_part(name):
    """`multimodel.tasks.task` -> `multimodel.tasks`; None for what is not the project's."""
    parts = name.split(".")
    if parts[0] in ("modality_nets", "recipes"):
        return parts[0]
    return ".".join(parts[:2]) if parts[0] == "multimodel" else None  # the public names are "multimodel"


@pytest.mark.parametrize("name", ALLOWED)
def test_imports_point_one_way(name):
    for file in files_of(name):
        parts = {part for part in map(own_part, imports_of(file)) if part} - {name}
        assert parts <= ALLOWED[name], f"{file.relative_to(ROOT)} imports {sorted(parts - ALLOWED[name])}"


@pytest.mark.parametrize("name", ["modality_nets", *(f"multimodel.{part}" for part in CORE)])
def test_the_core_imports_keras_alone(name):
    for file in files_of(name):
        for module in imports_of(file):
            assert module.partition(".")[0] not in ("tensorflow", "jax", "torch", "tensorflow_text"), file


def test_every_part_has_a_rule():
    parts = {
        f"multimodel.{p.stem}"
        for p in (ROOT / "multimodel").iterdir()
        if p.suffix == ".py" or (p / "__init__.py").is_file()
    }
    assert parts - {
        "multimodel.__init__",
        "multimodel.__main__",
        "multimodel.cli",
        "multimodel.quickstart",
        "multimodel.shipped",
    } <= set(ALLOWED)
