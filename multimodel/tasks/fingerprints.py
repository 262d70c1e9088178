"""Which inputs are the same, or nearly: the same text but for case and signs, the same picture at another size or in
another file format, the same clip at another rate."""

import hashlib
import re
import unicodedata

import numpy as np
import PIL.Image

GRID, COLOURS = 8, 2  # a picture is compared as GRID x GRID shades and COLOURS x COLOURS colours, which JPEG blurs
SPANS = 64  # and a clip by the loudness of as many spans
NEAR = 2.0  # mean difference of near ones, of 255
BANDS = 5  # near ones agree in at least one of as many parts of their hash
NEIGHBOURS = 20  # others of the same hash that one is compared with


def exact(modality, value):
    """Equal for equal canonical values alone."""
    content = value.encode("utf-8", "surrogatepass") if modality == "text" else np.ascontiguousarray(value).tobytes()
    return hashlib.sha256(content + str(getattr(value, "shape", "")).encode()).digest()[:16]


def near(modality, value):
    """What near canonical values have in common: a str that is equal, or a vector that is close (see `near_pairs`)."""
    if modality == "text":
        plain = unicodedata.normalize("NFKC", value).casefold()
        return re.sub(r"[\W_]+", "", plain) or value  # signs alone are told apart
    if modality == "image":
        picture, box = PIL.Image.fromarray(value), PIL.Image.Resampling.BOX
        shades, colours = picture.convert("L").resize((GRID, GRID), box), picture.resize((COLOURS, COLOURS), box)
        return np.concatenate([np.asarray(shades).reshape(-1), np.asarray(colours).reshape(-1)])
    edges = np.linspace(0, len(value), SPANS + 1).astype(int)
    sums = np.concatenate([[0.0], np.cumsum(np.square(value, dtype="float64"))])
    loudness = np.sqrt((sums[edges[1:]] - sums[edges[:-1]]) / np.maximum(np.diff(edges), 1))
    return np.round(255 * loudness / (loudness.max() or 1)).astype("uint8")


def groups_of_equals(keys):
    """`{key: rows}` of the keys that several rows have."""
    groups: dict = {}
    for row, key in enumerate(keys):
        groups.setdefault(key, []).append(row)
    return {key: rows for key, rows in groups.items() if len(rows) > 1}


def near_groups(keys):
    """Lists of rows whose `near` keys agree."""
    if not keys or isinstance(keys[0], str):
        return list(groups_of_equals(keys).values())
    leader = list(range(len(keys)))

    def find(row):
        while leader[row] != row:
            leader[row] = leader[leader[row]]
            row = leader[row]
        return row

    for one, other in _near_pairs(np.stack(keys).astype("int16")):
        leader[find(other)] = find(one)
    return list(groups_of_equals([find(row) for row in range(len(keys))]).values())


def _near_pairs(vectors):
    """Pairs of rows `(n, d)` that differ by NEAR at most, among those whose hash agrees in a band.

    The hash says where a vector rises; rows of one hash are compared with those that are next to them in brightness.
    """
    rises = vectors[:, 1:] > vectors[:, :-1]
    means = vectors.mean(axis=1)
    for band in np.array_split(rises, BANDS, axis=1):
        codes = np.packbits(band, axis=1)
        order = np.lexsort((means, *codes.T))
        for distance in range(1, min(NEIGHBOURS, len(order) - 1) + 1):
            one, other = order[:-distance], order[distance:]
            same = (codes[one] == codes[other]).all(axis=1)
            one, other = one[same], other[same]
            close = np.abs(vectors[one] - vectors[other]).mean(axis=1) <= NEAR
            yield from zip(one[close].tolist(), other[close].tolist(), strict=True)
