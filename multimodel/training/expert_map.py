"""A picture of which experts each task uses."""

import numpy as np
import PIL.Image
import PIL.ImageDraw

WIDTH = 960  # pixels of all experts, at most, as long as an expert has SMALLEST
LARGEST, SMALLEST = 24, 4  # pixels of a cell
ROW = 18
EMPTY, FULL = np.array([247, 251, 255]), np.array([8, 48, 107])


def expert_map(shares):
    """A heat map: a row for each task, named, and a column for each expert.

    White is no choice, and the darkest blue twice an expert's even share or more.

    Args:
        shares: `{task: shares of its choices (e,)}`.

    Returns:
        A picture `(h, w, 3)` of uint8.
    """
    values = np.array(list(shares.values()))
    depth = np.minimum(values * values.shape[1] / 2, 1)[..., None]
    cell = int(np.clip(WIDTH // values.shape[1], SMALLEST, LARGEST))
    cells = (EMPTY + depth * (FULL - EMPTY)).round().astype("uint8").repeat(ROW, 0).repeat(cell, 1)
    names = _names(shares)
    return np.concatenate([names, cells], axis=1)


def _names(tasks):
    """The tasks' names, a row for each `(ROW * tasks, w, 3)`."""
    pen = PIL.ImageDraw.Draw(PIL.Image.new("RGB", (1, 1)))
    width = round(max(pen.textlength(task) for task in tasks)) + 8
    picture = PIL.Image.new("RGB", (width, ROW * len(tasks)), "white")
    pen = PIL.ImageDraw.Draw(picture)
    for row, task in enumerate(tasks):
        pen.text((4, ROW * row + 3), task, fill="black")
    return np.asarray(picture)
