"""A recipe for tests: three small tasks over text and images, in memory."""

import numpy as np

from modality_nets import ImageInputNet
from multimodel import Body, Mixture, Recipe, Task, Vocabulary, main
from multimodel.tasks import ArraySource, Image, Label, Text

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


def squares(count, seed):
    random = np.random.default_rng(seed)
    names = random.choice(list(COLOURS), count)
    images = [np.full((8, 8, 3), COLOURS[name], "uint8") for name in names]
    return {"image": images, "name": [str(name) for name in names], "caption": [f"a {name} square" for name in names]}


def words(count, seed):
    random = np.random.default_rng(seed)
    texts = [" ".join(random.choice(["ab", "cd", "ef", "gh"], random.integers(1, 4))) for _ in range(count)]
    return {"text": texts, "upper": [text.upper() for text in texts]}


def recipe():
    vocabulary = Vocabulary(320)
    pictures = ArraySource({"train": squares(60, 0), "test": squares(20, 1)})
    texts = ArraySource({"train": words(100, 0), "test": words(20, 1)})
    picture = Image("image", 8, 8)
    tasks = {
        Task("colours", pictures, picture, Label("name", tuple(COLOURS)), ("accuracy",)): 2,
        Task("captions", pictures, picture, Text("caption", vocabulary, 12), ("exact", "wer")): 1,
        Task("upper", texts, Text("text", vocabulary, 10), Text("upper", vocabulary, 10), ("exact", "bleu")): 1,
    }
    return Recipe(
        "tiny",
        Mixture(tasks),
        Body.small(16, num_experts=2),
        steps=4,
        batch_size=16,
        warmup_steps=2,
        nets={"image_input": ImageInputNet(16, filters=(4,))},
    )


if __name__ == "__main__":
    main(recipe)
