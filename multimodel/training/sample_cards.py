"""The examples of a run on its report: inputs, outputs, and where the decoder looked."""

import json

import PIL.Image

from multimodel.training.charts import heat_strip
from multimodel.training.page import data_uri, element, scroller

PIECES = 60  # of an alignment that are shown at most
CELLS = 120  # of a strip at most; neighbours are then shown by their largest


def sample_cards(folder, task):
    """One card for each line of `samples/TASK.jsonl`; none if the file is not there.

    Args:
        folder: the run's `samples/`.
        task: its name.
    """
    file = folder / f"{task}.jsonl"
    if not file.is_file():
        return []
    records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    opened = next((i for i, record in enumerate(records) if record["attention"]), None)  # one, to show that it is there
    return [_card(record, folder, f"{task}-{i}", i == opened) for i, record in enumerate(records)]


def _card(record, folder, key, opened):
    if record["picture"]:
        record["box"] = "0 0 {} {}".format(*_size(folder / record["picture"]))
    kind, sign = ("right", "✓ right") if record["right"] else ("wrong", "✗ wrong")
    score = element("span", f"log-probability {record['score']:.2f}", class_="muted")
    return element(
        "article",
        element("p", element("strong", sign), score, class_="verdict"),
        *_media(record, folder, key),
        _texts(record),
        _alignment(record, key, opened) if record["attention"] else None,
        class_=f"sample {kind}",
        aria_label=f"{record['input']}, {kind}",
    )


def _media(record, folder, key):
    """Picture, spectrogram and player of an input. What is drawn has an id, so that alignments can draw it again."""
    media = []
    if record["picture"]:
        image = element("image", href=data_uri(folder / record["picture"]), width="100%", height="100%", id=key)
        label = f"Picture {record['input']}"
        media.append(element("svg", image, viewBox=record["box"], class_="picture", role="img", aria_label=label))
    if record["spectrogram"]:
        place = {"width": "100%", "height": "100%", "preserveAspectRatio": "none"}
        image = element("image", href=data_uri(folder / record["spectrogram"]), id=key, **place)
        label = f"Spectrogram of {record['input']}"
        media.append(element("svg", image, class_="spectrogram", role="img", aria_label=label))
    if record["clip"]:
        uri = data_uri(folder / record["clip"])
        media.append(
            element("audio", src=uri, controls="controls", preload="metadata", aria_label=f"Clip {record['input']}")
        )
    return media


def _size(file):
    with PIL.Image.open(file) as picture:
        return picture.size


def _texts(record):
    """Input, target and output; one of the latter two where they are equal."""
    names = ("input", "output") if record["right"] else ("input", "target", "output")
    shown = ("input",) if record["picture"] or record["clip"] else ()
    rows = [(name, record[name] or "(nothing)") for name in names if name != "input" or not shown]
    return element("dl", *(part for name, text in rows for part in (element("dt", name), element("dd", text))))


def _alignment(record, key, opened):
    attention = record["attention"]
    pieces = [_shown(piece) for piece in attention["pieces"][:PIECES]]
    if not pieces:
        return None
    make = _looks_at_picture if record["picture"] and attention["grid"] else _looks_at_sequence
    looks = make(pieces, attention, key, record)
    return element("details", element("summary", "Where the decoder looked"), looks, open="open" if opened else None)


def _looks_at_sequence(pieces, attention, key, record):
    """A strip for each piece of the output over the source: over its pieces, or over the spectrogram."""
    weights, sources = attention["weights"][: len(pieces)], [_shown(source) for source in attention["sources"]]
    head, positions = [], 0
    if record["spectrogram"]:
        head = [element("svg", element("use", href=f"#{key}"), class_="spectrogram", aria_hidden="true")]
    elif len(sources) <= CELLS:
        positions = len(sources)
        names = [element("span", source) for source in sources]
        head = [element("div", *names, class_="sources", aria_hidden="true")]
    strongest, rows = max(map(max, weights)), []
    for piece, row in zip(pieces, weights, strict=True):
        label = f"{piece}: looks most at {sources[row.index(max(row))]}"
        rows += [
            element("span", piece, class_="piece", aria_hidden="true"),
            heat_strip(_narrowed(row), strongest, label),
        ]
    corner = [element("span")] if head else []
    grid = element("div", *corner, *head, *rows, class_="alignment", style=f"--positions: {positions}")
    return scroller("What each piece of the output looked at", grid)


def _narrowed(row):
    """A row of at most CELLS, by the largest of neighbours."""
    width = -(-len(row) // CELLS)
    return [max(row[i : i + width]) for i in range(0, len(row), width)]


def _looks_at_picture(pieces, attention, key, record):
    """The picture once for each piece of the output, coloured where it was looked at."""
    rows, columns = attention["grid"]
    weights = attention["weights"][: len(pieces)]
    strongest, figures = max(map(max, weights)), []
    for piece, row in zip(pieces, weights, strict=True):
        colours = [
            element(
                "rect",
                x=f"{100 * (cell % columns) / columns:.2f}%",
                y=f"{100 * (cell // columns) / rows:.2f}%",
                width=f"{100 / columns:.2f}%",
                height=f"{100 / rows:.2f}%",
                fill_opacity=round(0.8 * weight / strongest, 2),
            )
            for cell, weight in enumerate(row)
        ]
        row_of, column_of = divmod(row.index(max(row)), columns)
        label = f"{piece}: looks most at row {row_of + 1} of {rows}, column {column_of + 1} of {columns}"
        drawn = element("use", href=f"#{key}")
        picture = element("svg", drawn, *colours, viewBox=record["box"], role="img", aria_label=label)
        figures.append(element("figure", picture, element("figcaption", piece, aria_hidden="true")))
    return element("div", *figures, class_="looks")


def _shown(piece):
    """A piece without the space that it begins with; the end of an output as a word."""
    return "end" if piece == "</s>" else piece.strip(" ") or "space"
