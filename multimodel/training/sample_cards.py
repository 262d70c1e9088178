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
    kind, sign = ("right", "✓ right") if record["right"] else ("wrong", "✗ wrong")
    score = element("span", f"log-probability {record['score']:.2f}", class_="muted")
    box = _box(folder / record["picture"]) if record["picture"] else None
    return element(
        "article",
        element("p", element("strong", sign), score, class_="verdict"),
        *_media(record, folder, key, box),
        _texts(record),
        _alignment(record, key, box, opened) if record["attention"] else None,
        class_=f"sample {kind}",
        aria_label=f"{record['input']}, {kind}",
    )


def _box(picture):
    """The `viewBox` of a picture file."""
    with PIL.Image.open(picture) as opened:
        return f"0 0 {opened.width} {opened.height}"


def _media(record, folder, key, box):
    """Picture, spectrogram and player of an input. What is drawn has the id `key`, for alignments to draw it again."""
    media, shown = [], record["input"]
    whole = {"id": key, "width": "100%", "height": "100%"}
    if record["picture"]:
        image = element("image", href=data_uri(folder / record["picture"]), **whole)
        media.append(element("svg", image, viewBox=box, class_="picture", role="img", aria_label=f"Picture {shown}"))
    if record["spectrogram"]:
        image = element("image", href=data_uri(folder / record["spectrogram"]), preserveAspectRatio="none", **whole)
        media.append(element("svg", image, class_="spectrogram", role="img", aria_label=f"Spectrogram of {shown}"))
    if record["clip"]:
        clip = {"src": data_uri(folder / record["clip"]), "controls": "controls", "preload": "metadata"}
        media.append(element("audio", aria_label=f"Clip {shown}", **clip))
    return media


def _texts(record):
    """Input, if it is text, target and output; of the latter two one where they are equal."""
    names = [] if record["picture"] or record["clip"] else ["input"]
    names += ["output"] if record["right"] else ["target", "output"]
    rows = [part for name in names for part in (element("dt", name), element("dd", record[name] or "(nothing)"))]
    return element("dl", *rows)


def _alignment(record, key, box, opened):
    attention = record["attention"]
    pieces = [_shown(piece) for piece in attention["pieces"][:PIECES]]
    if not pieces or not attention["sources"]:
        return None
    if box and attention["grid"]:
        looks = _looks_at_picture(pieces, attention, key, box)
    else:
        looks = _looks_at_sequence(pieces, attention, key if record["spectrogram"] else None)
    return element("details", element("summary", "Where the decoder looked"), looks, open="open" if opened else None)


def _looks_at_sequence(pieces, attention, spectrogram):
    """A strip for each piece of the output, under the pieces of the source or under the spectrogram of this id."""
    weights, sources = attention["weights"][: len(pieces)], [_shown(source) for source in attention["sources"]]
    head, positions = [], 0
    if spectrogram:
        head = [element("svg", element("use", href=f"#{spectrogram}"), class_="spectrogram", aria_hidden="true")]
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


def _looks_at_picture(pieces, attention, key, box):
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
        picture = element("svg", drawn, *colours, viewBox=box, role="img", aria_label=label)
        figures.append(element("figure", picture, element("figcaption", piece, aria_hidden="true")))
    return element("div", *figures, class_="looks")


def _shown(piece):
    """A piece without the space that it begins with; the end of an output as a word."""
    return "end" if piece == "</s>" else piece.strip(" ") or "space"
