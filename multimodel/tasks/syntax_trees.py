"""Statements of Python's standard library and their syntax trees. Real; a little different in each Python version."""

import ast
import pathlib
import platform
import random
import sysconfig
import warnings

from multimodel.tasks.prepared import PreparedSource

HELD_OUT = {"test": 500, "validation": 500}
SHORTEST, LONGEST = 8, 40
LEFT_OUT = {"site-packages", "test", "tests", "idlelib"}


def python_ast():
    """Fields `statement`, 8 to 40 characters of ASCII, and `tree`, its node types in brackets; no statement twice.

    `b = t1 - u1` is `(Assign (Name) (BinOp (Name) (Sub) (Name)))`.
    """

    def build(progress):
        library = pathlib.Path(sysconfig.get_paths()["stdlib"])
        files = [f for f in sorted(library.rglob("*.py")) if not LEFT_OUT & set(f.relative_to(library).parts)]
        trees: dict[str, str] = {}
        for done, file in enumerate(files, 1):
            trees |= _statements(file)
            progress(done, len(files))
        pairs = sorted(trees.items())
        random.Random("python_ast").shuffle(pairs)
        splits, start = {}, 0
        for split, size in (*HELD_OUT.items(), ("train", len(pairs))):
            part = pairs[start : start + size]
            splits[split] = {"statement": [pair[0] for pair in part], "tree": [pair[1] for pair in part]}
            start += size
        return splits

    version = f"1-python{'.'.join(platform.python_version_tuple()[:2])}"
    return PreparedSource("python_ast", version, ("train", "validation", "test"), build)


def _statements(file):
    """`{statement: tree}` of the one-line assignments, returns and expressions of a file."""
    try:
        with warnings.catch_warnings(action="ignore"):
            module = ast.parse(file.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return {}
    found = {}
    for node in ast.walk(module):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Assign | ast.Return | ast.Expr) and node.lineno == node.end_lineno and not docstring:
            statement = ast.unparse(node)
            if SHORTEST <= len(statement) <= LONGEST and statement.isascii():
                found[statement] = bracketed(node)
    return found


def bracketed(node):
    """A syntax tree as nested brackets of node types, load and store contexts left out."""
    children = [bracketed(child) for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr_context)]
    return f"({' '.join([type(node).__name__, *children])})"
