"""A source that is a folder of files."""

import collections.abc
import hashlib
import json
import os
import pathlib

from multimodel.errors import UserError
from multimodel.tasks.features import UnreadableInputError
from multimodel.tasks.sources import HeldOut, Selection

COMPANIONS = (".txt", ".json")
SYSTEM_FILES = {"thumbs.db", "desktop.ini"}
SPLITS = ("train", "validation", "test")


class FolderSource:
    """Pictures or clips in a folder: one folder for each class, or each file with a `.txt` or `.json` beside it.

    Fields of an example: `file`, its path below the folder; `label`, the folder that it lies in, if that is not the
    source's own; `text`, the content of the `.txt` file of the same name, without the end of its last line; and what
    the `.json` file of the same name holds. Hidden files are left out.

    Where the source's own folder holds `train` and no other folders than `validation` and `test`, these are the splits.
    Else the files are shared out by `held_out`, in the order of their paths.

    Args:
        folder: holds the files, at any depth.
        held_out: `{split: share}` of the files that training does not see; a tenth for "test" by default.

    Raises:
        UserError: when examples are read, if there is no such folder, or no file in it.
    """

    def __init__(self, folder, held_out=None):
        self.folder = pathlib.Path(folder)
        self._held_out = HeldOut({"test": 0.1} if held_out is None else held_out)

    @property
    def splits(self):
        return self._split_folders() or self._held_out.splits

    def labels(self):
        """The names of the folders that files lie in, in order: the classes of a Label feature."""
        return tuple(sorted({label for file in self._files() if (label := self._label(file))}))

    def examples(self, split):
        """The files of a split, in the order of their paths."""
        return _Files(self.folder, self._files_of(split), self._label)

    def version(self, split):
        """Changes with the names of the files, and with the `.txt` and `.json` files beside them."""
        digest = hashlib.sha256()
        for file in self._files_of(split):
            digest.update(f"{file.relative_to(self.folder)}\0".encode("utf-8", "surrogateescape"))
            for companion in map(file.with_suffix, COMPANIONS):
                if companion.is_file():
                    digest.update(companion.read_bytes())
        return digest.hexdigest()

    def _files(self):
        if not self.folder.is_dir():
            raise UserError(
                f"A FolderSource reads a folder. Received: folder={str(self.folder)!r}, which is none. Check the path."
            )
        paths = []
        for parent, folders, names in os.walk(self.folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            paths += [pathlib.Path(parent, name) for name in names if _is_example(name)]
        return sorted(paths)

    def _files_of(self, split):
        files = self._files()
        if self._split_folders():
            return [file for file in files if file.relative_to(self.folder).parts[0] == split]
        return Selection(files, self._held_out.rows(split, len(files)))

    def _split_folders(self):
        """The folders that are splits, or () where there are others beside them."""
        folders = self.folder.iterdir() if self.folder.is_dir() else ()
        names = {path.name for path in folders if path.is_dir() and not path.name.startswith(".")}
        return tuple(name for name in SPLITS if name in names) if "train" in names and names <= {*SPLITS} else ()

    def _label(self, file):
        parents = file.parent.relative_to(self.folder).parts[1 if self._split_folders() else 0 :]
        return parents[-1] if parents else None


def _is_example(name):
    return not name.startswith(".") and name.lower() not in SYSTEM_FILES and not name.endswith(COMPANIONS)


class _Files(collections.abc.Sequence):
    def __init__(self, folder, files, label):
        self._folder, self._paths, self._label = folder, files, label

    def __len__(self):
        return len(self._paths)

    def where(self, row):
        return str(self._paths[row])

    def __getitem__(self, row):
        file = self._paths[row]
        example = {"file": str(file.relative_to(self._folder)), "label": self._label(file)}
        if (text := file.with_suffix(".txt")).is_file():
            example["text"] = _content(text).removesuffix("\n").removesuffix("\r")
        if (fields := file.with_suffix(".json")).is_file():
            example |= _object(fields)
        return example


def _object(file):
    try:
        content = json.loads(_content(file))
    except ValueError as error:
        raise UnreadableInputError(f"{file}: not JSON ({error})") from None
    if not isinstance(content, dict):
        raise UnreadableInputError(f"{file}: the file beside an example holds a JSON object. Received: {content!r:.60}")
    return content


def _content(file):
    return file.read_bytes().decode("utf-8-sig", "surrogateescape")
