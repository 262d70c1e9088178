"""Sentences of the Wall Street Journal and their parse trees, from the user's own copy of the Penn Treebank."""

import collections
import collections.abc
import pathlib
import re

from multimodel.errors import UserError

STANDARD_SPLITS = {"train": range(2, 22), "validation": (22,), "test": (23,)}
LAST_SECTION = 24
TOP_LABELS = {"", "TOP", "ROOT", "S1"}
TRACE = "-NONE-"

_FILE = re.compile(r"wsj_(\d\d)\d\d\.mrg", re.IGNORECASE)
_PIECE = re.compile(
    r"\(\s*(?P<tag>[^\s()]+)\s+(?P<word>[^\s()]+)\s*\)"  # a whole leaf; its lastgroup is "word"
    r"|\(\s*(?P<open>[^\s()]*)"
    r"|(?P<close>\))"
    r"|(?P<stray>[^\s()]+)"
)


class PennTreebankSource:
    """Parsing: fields `sentence`, its words, and `tree`, its linearised tree (see `linearise`).

    Reads files `wsj_SSNN.mrg`, where SS is the section, anywhere below the folder. Of two files with one name the first
    path in the alphabet is read. Examples come in the order of file names, and of trees in a file; trees without a word
    are left out.

    Args:
        folder: holds the merged files of Treebank-3 (LDC99T42), as in its own `parsed/mrg/wsj/SS/wsj_SSNN.mrg`.
        splits: `{split: section numbers}`; by default the field's standard: train 2 to 21, validation 22, test 23.

    Raises:
        UserError: if a split names no section or one that is none of 0 to 24, or if two splits share one.
    """

    def __init__(self, folder, splits=None):
        self.folder = pathlib.Path(folder)
        self._sections = _checked(STANDARD_SPLITS if splits is None else splits)
        self.splits = tuple(self._sections)

    def missing(self):
        """None if every section of every split has a file, else one line that says what to get and where to put it."""
        return self._missing(self._files())

    def examples(self, split):
        """List of `{"sentence": str, "tree": str}`, in an order that never changes.

        Raises:
            UserError: if data is missing, or if a file is not made of well-formed trees; the message names the line and
                the tree.
        """
        files = self._files()
        if missing := self._missing(files):
            raise UserError(missing)
        pairs = [pair for section in self._sections[split] for file in files[section] for pair in _read(file)]
        return [{"sentence": words, "tree": tags} for words, tags in pairs if words]

    def version(self, split):
        """Changes with the names, sizes and times of the split's files."""
        files = self._files()
        stats = [(path.name, path.stat()) for section in self._sections[split] for path in files[section]]
        return repr([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])

    def _files(self):
        """`{section: its files in the order of their names}`, with an empty list for a section without any."""
        named: dict[str, pathlib.Path] = {}
        for path in sorted(path for path in self.folder.rglob("*") if _FILE.fullmatch(path.name)):
            named.setdefault(path.name.lower(), path)
        files = collections.defaultdict(list)
        for name in sorted(named):
            files[int(name[4:6])].append(named[name])
        return files

    def _missing(self, files):
        lacking = {
            split: [section for section in sections if not files[section]] for split, sections in self._sections.items()
        }
        absent = [f"{_numbers(sections)} ({split})" for split, sections in lacking.items() if sections]
        if not absent:
            return None
        return (
            f"The Penn Treebank is licensed: get Treebank-3 (LDC99T42) from the Linguistic Data Consortium. Received: "
            f"folder={str(self.folder)!r}, which holds no file of Wall Street Journal sections {', '.join(absent)}. "
            f"Put its merged files there, as in parsed/mrg/wsj/SS/wsj_SSNN.mrg, or give splits the sections you have."
        )


def linearise(tree):
    """A bracketed tree as words and as a sequence of tags, the linearisation of arXiv 1412.7449.

    `( (S (NP (DT The) (NN cat)) (VP (VBZ sleeps)) (. .)))` is `The cat sleeps .` and
    `S NP DT NN /NP VP VBZ /VP . /S`: constituents open and close, a leaf is its part-of-speech tag alone, and the top
    bracket is left out if it has no label or TOP, ROOT or S1. Traces go, with all that holds nothing else, and so do
    function tags and indices: `NP-SBJ-1` is `NP`, `ADVP|PRT` is `ADVP`, while `-LRB-` stays.

    Args:
        tree: text of one tree, over any number of lines.

    Returns:
        `(words, tags)`, each one string with spaces between; both are empty for a tree of traces alone.

    Raises:
        UserError: if the text is not one well-formed tree.
    """
    try:
        trees = list(_trees(tree))
    except _MalformedError as error:
        raise UserError(f"A tree is well-formed. Received: tree={tree[:60]!r}, where {error}. Mend it.") from None
    if len(trees) != 1:
        raise UserError(f"Give one tree at a time. Received: {len(trees)} trees in tree={tree[:60]!r}.")
    return _linearised(trees[0])


class _MalformedError(Exception):
    """What is wrong with a tree; `place` is a position in the text."""

    def __init__(self, reason, place):
        super().__init__(reason)
        self.place = place


def _checked(splits):
    """`{split: its sections in order}`."""
    taken: dict[int, str] = {}
    for split, sections in splits.items():
        sections = list(sections) if isinstance(sections, collections.abc.Iterable) else [sections]
        if not sections or not set(sections) <= set(range(LAST_SECTION + 1)):
            raise UserError(
                f"A split has sections of 0 to {LAST_SECTION}. Received: {sections} for split {split!r}. "
                f"Give a list of whole numbers."
            )
        if shared := taken.keys() & set(sections):
            raise UserError(
                f"A section belongs to one split. Received: section {min(shared)} in {taken[min(shared)]!r} and "
                f"{split!r}. Take it out of one."
            )
        taken |= dict.fromkeys(sections, split)
    return {split: sorted(section for section, owner in taken.items() if owner == split) for split in splits}


def _numbers(sections):
    """`02-21` for a run of sections, else `00, 02`."""
    first, last = sections[0], sections[-1]
    if len(sections) > 1 and sections == list(range(first, last + 1)):
        return f"{first:02}-{last:02}"
    return ", ".join(f"{section:02}" for section in sections)


def _read(file):
    """`[(words, tags)]` of a file's trees."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: not a readable text file ({error}). Copy it anew.") from None
    pairs = []
    try:
        for tree in _trees(text):
            pairs.append(_linearised(tree))
        if not pairs:
            raise _MalformedError("no bracket opens", 0)
    except _MalformedError as error:
        line = text.count("\n", 0, error.place) + 1
        raise UserError(f"{file}, line {line}, tree {len(pairs) + 1}: {error}. Copy the file anew.") from None
    return pairs


def _trees(text):
    """Yields the matches of `_PIECE` that make up each tree, as a list.

    Raises:
        _MalformedError: when it gets to a tree that is not well-formed.
    """
    tree: list[re.Match[str]] = []
    depth = 0
    for piece in _PIECE.finditer(text):
        kind = piece.lastgroup
        if kind == "stray":
            raise _MalformedError(f"{piece['stray'][:40]!r} is not in a (TAG word) of its own", piece.start())
        if kind == "close" and not tree:
            raise _MalformedError("a bracket closes that never opened", piece.start())
        if kind == "close" and tree[-1].lastgroup == "open":
            raise _MalformedError("a bracket holds nothing", piece.start())
        tree.append(piece)
        depth += (kind == "open") - (kind == "close")
        if depth == 0:
            yield tree
            tree = []
    if tree:
        raise _MalformedError("a bracket opens that never closes", tree[0].start())


def _linearised(tree):
    words: list[str] = []
    tags: list[str] = []
    opened: list[tuple[str, int]] = []
    for piece in tree:
        kind = piece.lastgroup
        if kind == "word" and piece["tag"] != TRACE:
            words.append(piece["word"])
            tags.append(_bare(piece["tag"]))
        elif kind == "open":
            label = _bare(piece["open"])
            if not opened and label in TOP_LABELS:
                label = ""
            opened.append((label, len(words)))
            tags += [label] if label else []
        elif kind == "close":
            label, words_before = opened.pop()
            if label and len(words) == words_before:
                tags.pop()  # its own opening: what it held has gone in the same way
            elif label:
                tags.append(f"/{label}")
    return " ".join(words), " ".join(tags)


def _bare(label):
    """A label without function tags and indices; whole if it begins with a hyphen, as in `-LRB-`."""
    return re.split("[-=|]", label, maxsplit=1)[0] or label
