"""What is in the data, and what is wrong with it, before a run."""

import collections
import dataclasses
import pathlib
from typing import Any

import numpy as np
import PIL.Image
import soundfile

from multimodel.errors import UserError
from multimodel.tasks import fingerprints
from multimodel.tasks.cache import showing_progress
from multimodel.tasks.examples import (
    INCOMPLETE,
    TOO_LONG,
    UNUSABLE,
    LeftOut,
    LeftOutError,
    folder_of,
    in_threads,
    place_of,
    read_field,
    read_row,
    require_data,
    train_vocabularies,
)
from multimodel.tasks.features import Audio, Image, Label, Text
from multimodel.tasks.folder_source import FolderSource
from multimodel.tasks.sources import ArraySource
from multimodel.tasks.table_files import CsvSource, JsonlSource
from multimodel.tasks.vocabulary import Vocabulary

CHUNK = 128  # rows that a thread examines at a time
NAMED = 10  # rows of a group of duplicates that are named
LONGEST = 600.0  # seconds of a clip that are read where no recipe says how many
TABLES = {".jsonl": JsonlSource, ".json": JsonlSource, ".csv": CsvSource, ".tsv": CsvSource}


@dataclasses.dataclass(frozen=True)
class _Part:
    """Data to check: some fields of a source. Without a recipe no field is `required`."""

    name: str
    source: Any
    features: list
    required: bool


@dataclasses.dataclass(frozen=True)
class _Row:
    """What was found of one usable row; `sizes` are `{field: size}`, and duplicates are of its first field."""

    path: str
    sizes: dict
    exact: bytes
    near: Any
    odd: list


def check_tasks(tasks):
    """Reads every example of every split of some tasks; vocabularies are trained first, as a run does it.

    Args:
        tasks: `{name: Task}`.

    Returns:
        `{"examples": number, "unusable": [{"task", "path", "reason"}], "odd": the same, "duplicates": [{"task",
        "kind": "exact" or "near", "across_splits", "count", "examples"}], "splits": [...]}`, the last one with counts,
        sizes, lengths and labels of each task and split.

    Raises:
        UserError: if data is missing.
    """
    require_data(tasks)
    train_vocabularies(tasks)
    return _report([_Part(name, task.source, [task.inputs, task.targets], True) for name, task in tasks.items()])


def check_path(path):
    """As `check_tasks`, of a folder of files, a JSON lines or CSV file, or one picture or clip, without a recipe.

    Whether a field is a picture, a clip or text is seen from its values. Lengths of text are in characters.

    Raises:
        UserError: if there is no such path, or nothing to read in it.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        source: Any = FolderSource(path, held_out={})
    elif path.is_file():
        table = TABLES.get(path.suffix)
        source = table(path, held_out={}) if table else ArraySource({"train": {"file": [str(path)]}})
    else:
        raise UserError(f"A path to check exists. Received: {str(path)!r}. Check the spelling, or name a recipe.")
    features = _guessed_features(source)
    if not features:
        raise UserError(f"Data to check has pictures, clips or text. Received: {str(path)!r}, without any.")
    return _report([_Part(path.name, source, features, False)])


def _guessed_features(source):
    """Features of the fields of a source without a recipe, files first."""
    kinds: dict = collections.defaultdict(collections.Counter)
    for split in source.splits:
        examples = source.examples(split)
        for row in range(len(examples)):
            try:
                example = read_row(examples, split, row)
            except LeftOutError:
                continue
            for field, value in example.items():
                if isinstance(value, str):
                    kinds[field][_kind(folder_of(source), field, value)] += 1
    characters = Vocabulary(0)  # never trained
    features: list = []
    for field, counts in kinds.items():
        kind = counts.most_common(1)[0][0]
        if kind == "image":
            features.append(Image(field, 1, 1))
        elif kind == "audio":
            features.append(Audio(field, None, LONGEST))
        elif field == "label" and isinstance(source, FolderSource):
            features.append(Label(field, source.labels()))
        else:
            features.append(Text(field, characters, 1))
    return sorted(features, key=lambda feature: feature.modality not in ("image", "audio"))


def _kind(folder, field, value):
    """What a value is, by its name where it is one of a file."""
    suffix = pathlib.PurePath(value[:1000]).suffix.lower()
    is_sound = suffix[1:].upper() in {*soundfile.available_formats(), "WAVE", "OGA"}
    is_picture = suffix in PIL.Image.registered_extensions()
    if field == "file" or ((is_sound or is_picture) and "\n" not in value and pathlib.Path(folder, value).is_file()):
        return "audio" if is_sound else "image"
    return "text"


def _report(parts):
    report: dict[str, Any] = {"examples": 0, "unusable": [], "odd": [], "duplicates": [], "splits": []}
    for part in parts:
        found: list = []
        for split in part.source.splits:
            rows, left_out = _examined(part, split)
            found += [(split, row) for row in rows]
            report["examples"] += len(rows) + len(left_out)
            bad = [(one.path, one.reason) for one in left_out if one.kind == UNUSABLE]
            odd = [(row.path, reason) for row in rows for reason in row.odd]
            for name, listed in (("unusable", bad), ("odd", odd)):
                report[name] += [{"task": part.name, "path": path, "reason": reason} for path, reason in listed]
            report["splits"].append(_summary(part, split, rows, left_out))
        report["duplicates"] += _duplicates(part.name, found)
    return report


def _examined(part, split):
    """`(list of _Row, list of LeftOut)` of a split."""
    examples = part.source.examples(split)
    chunks = [range(start, min(start + CHUNK, len(examples))) for start in range(0, len(examples), CHUNK)]
    rows: list = []
    left_out: list = []
    with showing_progress(f"Reading {part.name}, {split}") as progress:
        for found in in_threads(lambda chunk: _examine(part, split, examples, chunk), chunks):
            rows += [one for one in found if isinstance(one, _Row)]
            left_out += [one for one in found if isinstance(one, LeftOut)]
            progress(len(rows) + len(left_out), len(examples))
    return rows, left_out


def _examine(part, split, examples, chunk):
    """A _Row or a LeftOut for each row of a chunk."""
    found: list = []
    for row in chunk:
        place = place_of(examples, split, row)
        try:
            example = read_row(examples, split, row)
            present = [f for f in part.features if part.required or isinstance(example.get(f.field), str)]
            folder = folder_of(part.source)
            read = [(f, *read_field(f, example, row, place, folder, examine=True)) for f in present]
            found.append(
                _row(example, place, folder, read) if read else LeftOut(row, INCOMPLETE, place, None, "no text or file")
            )
        except LeftOutError as error:
            found.append(error.left_out)
    for feature in part.features:
        if feature.modality == "text" and feature.vocabulary.trained:  # together, which is many times as fast
            with_text = [row for row in found if isinstance(row, _Row) and feature.field in row.sizes]
            lengths = feature.vocabulary.encode([row.sizes[feature.field] for row in with_text]).row_lengths().numpy()
            for row, length in zip(with_text, lengths.tolist(), strict=True):
                row.sizes[feature.field] = length
    return found


def _row(example, place, folder, read):
    feature, value, _ = read[0]
    named = example[feature.field]
    is_file = feature.modality in ("image", "audio") and isinstance(named, str)
    return _Row(
        path=str(pathlib.Path(folder, named)) if is_file else place,
        sizes={f.field: _size(f, value) for f, value, _ in read},
        exact=fingerprints.exact(feature.modality, value),
        near=fingerprints.near(feature.modality, value),
        odd=[note for _, _, notes in read for note in notes],
    )


def _size(feature, value):
    """Of a picture width and height; of a clip its samples; of text its characters, or, where ids will be counted, the
    text itself; of a label its name."""
    if feature.modality == "image":
        return value.shape[1::-1]
    if feature.modality == "text" and feature.vocabulary.trained:
        return value
    return value if feature.modality == "label" else len(value)


def _summary(part, split, rows, left_out):
    kinds = collections.Counter(one.kind for one in left_out)
    fields = {
        f.field: _measured(f, [row.sizes[f.field] for row in rows if f.field in row.sizes]) for f in part.features
    }
    return {
        "task": part.name,
        "split": split,
        "examples": len(rows) + len(left_out),
        **{kind.replace(" ", "_"): kinds[kind] for kind in (UNUSABLE, INCOMPLETE)},
        "odd": sum(bool(row.odd) for row in rows),
        "fields": fields,
    }


def _measured(feature, sizes):
    """What a summary says of one field."""
    if feature.modality == "label":
        counts = collections.Counter(sizes)
        return {"labels": {name: counts[name] for name in feature.names}}
    if not sizes:
        return {}
    if feature.modality == "image":
        widths, heights = zip(*sizes, strict=True)
        return {"width": _quantiles(widths), "height": _quantiles(heights)}
    if feature.modality == "audio":
        return {"samples": _quantiles(sizes)} | _too_long(feature, sizes)
    if feature.vocabulary.trained:
        return {"ids": _quantiles(sizes)} | _too_long(feature, sizes)
    return {"characters": _quantiles(sizes)}


def _too_long(feature, sizes):
    share = round(float(np.mean(np.array(sizes) > feature.shape[0])), 4) if feature.shape else 0.0
    return {TOO_LONG.replace(" ", "_"): share, "then": feature.too_long}


def _quantiles(sizes):
    values = np.quantile(sizes, (0, 0.5, 0.95, 1), method="nearest")
    return dict(zip(("least", "median", "95%", "most"), map(int, values), strict=True))


def _duplicates(task, found):
    """Groups of equal inputs, and of near ones that are not all equal; those across splits first."""
    rows = [row for _, row in found]
    exact = list(fingerprints.groups_of_equals([row.exact for row in rows]).values())
    near = [
        group
        for group in fingerprints.near_groups([row.near for row in rows])
        if len({rows[i].exact for i in group}) > 1
    ]
    groups = [
        {
            "task": task,
            "kind": kind,
            "across_splits": len({found[i][0] for i in group}) > 1,
            "count": len(group),
            "examples": [f"{found[i][0]}: {rows[i].path}" for i in group[:NAMED]],
        }
        for kind, members in (("exact", exact), ("near", near))
        for group in members
    ]
    return sorted(groups, key=lambda group: (not group["across_splits"], -group["count"]))
