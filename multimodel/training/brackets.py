"""Labelled bracketing F1 of parse trees, by the rules of EVALB with its COLLINS.prm."""

import collections
import re

from multimodel.tasks.treebank import TOP_LABELS, TRACE

UNSCORED_LEAVES = {",", ":", "``", "''", ".", TRACE}
UNSCORED_LABELS = TOP_LABELS | UNSCORED_LEAVES

_PIECE = re.compile(
    r"\( ?(?P<leaf>[^ ()]*)(?: [^ ()]+)? ?(?:\)|\Z)"
    r"|\( ?(?P<open>[^ ()]*)"
    r"|(?P<close>\))"
    r"|(?P<word>[^ ()]+)"
)


def bracket_f1(outputs, targets):
    """Labelled bracketing F1 over a corpus, 0 to 1; 1 if there is no bracket to find and none was found.

    A tree is written in nested parentheses, with words (`(NP (DT the) (NN cat))`) or without (`(NP (DT) (NN))`), or
    linearised as a sequence of tags (`NP DT NN /NP`), where a tag that is closed later is a constituent and any other
    is a leaf. Output and target may differ in this.

    Constituents are compared as multisets of label, start and end. Top labels are not counted, punctuation and traces
    are deleted before leaves are numbered, function tags are cut off, and ADVP and PRT are one label.

    Any output has a score: closings without an opening are ignored, what is left open is closed at the end. If output
    and target differ in their number of leaves, punctuation and traces aside, none of the output's brackets is right:
    EVALB leaves such a sentence out, so a model could gain by failing on hard ones. Words are not compared.

    Args:
        outputs: trees as strings.
        targets: the right trees, as many.
    """
    matched = total = 0
    for output, target in zip(outputs, targets, strict=True):
        found, leaves = _brackets(output)
        wanted, target_leaves = _brackets(target)
        matched += (found & wanted).total() if leaves == target_leaves else 0
        total += found.total() + wanted.total()
    return 2 * matched / total if total else 1.0


def _brackets(tree):
    """`(Counter of (label, start, end), number of leaves)`."""
    brackets: collections.Counter[tuple[str, int, int]] = collections.Counter()
    opened: list[tuple[str, int]] = []
    leaves = 0
    pieces = _nested(tree) if "(" in tree else _linearised(tree)
    for kind, label in pieces:
        if kind == "leaf":
            leaves += label not in UNSCORED_LEAVES
        elif kind == "open":
            opened.append((_bare(label), leaves))
        elif opened:
            brackets[(*opened.pop(), leaves)] += 1
    brackets.update((*bracket, leaves) for bracket in opened)
    scored = {b: n for b, n in brackets.items() if b[0] not in UNSCORED_LABELS and b[1] < b[2]}
    return collections.Counter(scored), leaves


def _nested(tree):
    """`[("open" or "leaf" or "close", label)]` of nested parentheses; a word without a bracket of its own is a leaf."""
    matches = _PIECE.finditer(" ".join(tree.split()))
    pieces = [(str(match.lastgroup), match[str(match.lastgroup)]) for match in matches]
    return [("leaf" if kind == "word" else kind, label) for kind, label in pieces]


def _linearised(tree):
    """`[("open" or "leaf" or "close", label)]` of a sequence of tags; closings without an opening are left out."""
    pieces: list[tuple[str, str]] = []
    opened: list[int] = []  # places in pieces of the tags that may still be closed
    for tag in tree.split():
        if not tag.startswith("/"):
            opened.append(len(pieces))
            pieces.append(("leaf", tag))
            continue
        depth = next((i for i in reversed(range(len(opened))) if pieces[opened[i]][1] == tag[1:]), None)
        if depth is not None:
            pieces[opened[depth]] = ("open", tag[1:])
            pieces.append(("close", tag[1:]))
            del opened[depth:]  # tags after it lie inside and stay leaves
    return pieces


def _bare(label):
    """A label without function tags and indices, PRT as ADVP."""
    label = re.split("[-=]", label, maxsplit=1)[0]
    return "ADVP" if label == "PRT" else label
