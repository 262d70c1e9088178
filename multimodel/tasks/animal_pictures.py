"""Pictures of animals, and scenes composed of them, from the package animal-mnist (MIT).

The package holds 10,000 silhouettes, 28 x 28, of ten animals. Exact duplicates are removed, mirror images counted as
duplicates. The pictures are real; the scenes and their captions are composed here.
"""

import gzip
import importlib.metadata
import io
import pathlib
import pickle

import numpy as np

from multimodel.tasks.prepared import PreparedSource, require_extra

NAMES = ("bear", "bird", "cat", "cow", "dog", "elephant", "giraffe", "horse", "sheep", "zebra")
HELD_OUT = {"test": 1000, "validation": 500}
SCENES = {"train": 20000, "validation": 500, "test": 500}
SIDE = 64


def animals():
    """Fields `image` uint8 `(28, 28)` and `name`.

    Training pictures stand four times: as they are, mirrored, and both of these moved by up to 2 pixels.
    """

    def build(progress):
        splits = {}
        for split, (images, labels) in _pictures().items():
            if split == "train":
                both = np.concatenate([images, images[:, :, ::-1]])
                images, labels = np.concatenate([both, _moved(both, np.random.default_rng(0))]), np.tile(labels, 4)
            splits[split] = {"image": images, "name": [NAMES[label] for label in labels]}
        return splits

    return PreparedSource("animals", 1, ("train", "validation", "test"), build)


def scenes():
    """Fields `image` uint8 `(64, 64)` and `caption`; the scenes of a split hold only pictures of that split."""

    def build(progress):
        splits, total, done = {}, sum(SCENES.values()), 0
        for seed, (split, (pictures, labels)) in enumerate(_pictures().items()):
            random = np.random.default_rng(seed)
            images, captions = np.zeros((SCENES[split], SIDE, SIDE), np.uint8), []
            for canvas in images:
                captions.append(_compose(canvas, pictures, labels, random))
                done += 1
                progress(done, total)
            splits[split] = {"image": images, "caption": captions}
        return splits

    return PreparedSource("scenes", 1, ("train", "validation", "test"), build)


def _pictures():
    """`{split: (images, labels)}` of distinct pictures."""
    with require_extra("quickstart"):
        package = importlib.metadata.distribution("animal-mnist")
    folder = pathlib.Path(str(package.locate_file("animal_mnist/data/Animal_MNIST")))
    images, labels = (
        _ArrayUnpickler(io.BytesIO(gzip.decompress((folder / f"animal_{part}_version_3.gz").read_bytes()))).load()
        for part in ("data", "label")
    )
    distinct = {min(image.tobytes(), image[:, ::-1].tobytes()): index for index, image in enumerate(images)}
    order = np.random.default_rng(0).permutation(sorted(distinct.values()))
    splits, start = {}, 0
    for split, size in (*HELD_OUT.items(), ("train", len(order))):
        rows = order[start : start + size]
        splits[split] = images[rows], labels[rows]
        start += size
    return splits


def _moved(images, random):
    """Each image moved by -2 to 2 pixels both ways, black where nothing was."""
    wide = np.pad(images, [(0, 0), (2, 2), (2, 2)])
    size = images.shape[1]
    corners = random.integers(0, 5, (len(images), 2))
    return np.stack([image[y : y + size, x : x + size] for image, (y, x) in zip(wide, corners, strict=True)])


class _ArrayUnpickler(pickle.Unpickler):
    """Reads pickled NumPy arrays and refuses everything else."""

    ALLOWED = frozenset({("_reconstruct", "multiarray"), ("ndarray", "numpy"), ("dtype", "numpy")})

    def find_class(self, module, name):
        if not module.startswith("numpy") or (name, module.rpartition(".")[2]) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"only arrays are read. Received: {module}.{name}")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def _compose(canvas, images, labels, random):
    """Draws one scene onto the canvas and returns its caption."""

    def put(index, x, y):
        x, y = x - 14 + random.integers(-2, 3), y - 14 + random.integers(-2, 3)
        picture = images[index] if random.integers(2) else images[index][:, ::-1]
        view = canvas[y : y + 28, x : x + 28]
        np.maximum(view, picture, out=view)

    def with_article(index):
        name = NAMES[labels[index]]
        return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"

    kind = random.integers(4)
    if kind == 1:
        label, count = random.integers(len(NAMES)), random.integers(2, 4)
        places = [(18, 18), (46, 18), (32, 46)]
        for index, place in zip(random.choice(np.flatnonzero(labels == label), count), places, strict=False):
            put(index, *place)
        name = NAMES[label]
        return f"{('two', 'three')[count - 2]} {name if name == 'sheep' else name + 's'}"
    first, second = random.integers(len(images), size=2)
    if kind == 0:
        put(first, 32, 32)
        return with_article(first)
    (left, top), word = ((32, 17), "above") if kind == 3 else ((17, 32), "left of")
    put(first, left, top)
    put(second, SIDE - left, SIDE - top)
    return f"{with_article(first)} {word} {with_article(second)}"
