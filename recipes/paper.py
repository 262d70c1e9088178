"""The eight tasks of "One Model To Learn Them All", in the paper's model.

What:      ImageNet, COCO captions, WMT English <-> German and English <-> French, speech, parsing
Paper:     arXiv 1706.05137: 1024 channels, 6 + 2 + 4 ConvBlocks, 240 experts of which 4 are taken, its own nets
Data:      tensorflow-datasets, prepared beforehand (each missing one is told with its command), and, licensed, the
           Penn Treebank (LDC99T42) in data/treebank3. LibriSpeech stands in for the speech of the Wall Street Journal,
           unless data/wsj holds train.jsonl, validation.jsonl and test.jsonl with lines such as
           {"audio": "wav/011c0201.wav", "text": "..."}. MULTIMODEL_DATA names another folder than data.
Hardware:  1.15 billion parameters: 18.4 GB with Adam's moments and gradients before the first activation
Scores:    not measured by us at this size; the paper's are in docs/fidelity.md
Command:   multimodel train paper

The paper states Adam with gradient clipping, dropout 0.4 and one set of settings for all tasks; the numbers are those
of its first public code where they are known: a peak rate of 1e-4 after 3,000 steps, betas 0.85 and 0.997, clipping at
2, smoothing 0.1, 1,024 positions of text of each task a step, two pictures, captions and clips, loss weights 0.7 for
ImageNet and 2 for speech. The number of steps is ours: that code's default of 250,000 is shorter than its decay.
"""

import os
import pathlib

from modality_nets import SpectrogramInputNet, XceptionInputNet, XceptionOutputNet
from multimodel import Body, Mixture, Recipe, Task, Vocabulary, main
from multimodel.tasks import (
    Audio,
    FlattenedSource,
    Image,
    JsonlSource,
    Label,
    PennTreebankSource,
    Text,
    TfdsSource,
)

SAMPLE_RATE, SECONDS = 16000, 25
N, M, CAPTION, TRANSCRIPT, TREE = 64, 64, 32, 128, 256  # positions of text
FORCED = ("token_accuracy", "log_perplexity")


def recipe(body=None, picture_size=299):
    body = body or Body.paper()
    words = Vocabulary(8192)
    picture = Image("image", picture_size, picture_size)
    text = {language: Text(language, words, N) for language in ("en", "de", "fr")}
    german, french = translations("de-en"), translations("fr-en")
    translation = ("bleu", *FORCED)
    names, entry_flow = imagenet().labels("label"), XceptionInputNet(body.dim)
    _, columns = entry_flow.grid(picture.shape)
    clip, transcript = Audio("audio", SAMPLE_RATE, SECONDS), Text("text", words, TRANSCRIPT)
    tree = Text("tree", words, TREE)
    tasks = {
        Task("imagenet", imagenet(), picture, Label("label", names), ("accuracy", "top5", "log_perplexity")): 2,
        Task("captions", captions(), picture, Text("captions/text", words, CAPTION), translation, "english"): 2,
        Task("wmt_en_de", german, text["en"], text["de"], translation, "german"): 16,
        Task("wmt_de_en", german, text["de"], text["en"], translation, "english"): 16,
        Task("wmt_en_fr", french, text["en"], text["fr"], translation, "french"): 16,
        Task("wmt_fr_en", french, text["fr"], text["en"], translation, "english"): 16,
        Task("speech", speech(), clip, transcript, ("wer", "cer", *FORCED), "english"): 2,
        Task("parsing", treebank(), Text("sentence", words, N), tree, ("bracket_f1", "exact", *FORCED), "tree"): 4,
    }
    return Recipe(
        name="paper",
        mixture=Mixture(tasks),
        body=body,
        nets={
            "image_input": entry_flow,
            "audio_input": SpectrogramInputNet(body.dim, SAMPLE_RATE),
            "imagenet_output": XceptionOutputNet(len(names), body.dim, columns),
        },
        batch_size=74,
        steps=1_000_000,
        learning_rate=1e-4,
        warmup_steps=3000,
        schedule="exponential_tail",
        betas=(0.85, 0.997),
        epsilon=1e-6,
        clipnorm=2.0,
        loss_weights={"imagenet": 0.7, "speech": 2.0},
        description="the paper's eight tasks in the paper's model",
        data="tensorflow-datasets, prepared beforehand, hundreds of GB; the licensed Penn Treebank in data/treebank3",
        time="not measured; the paper's authors trained for more than a week on many machines",
    )


def data_folder():
    return pathlib.Path(os.environ.get("MULTIMODEL_DATA", "data"))


def imagenet():
    return TfdsSource("imagenet2012", {"train": "train", "test": "validation"}, fields=("image", "label"))


def captions():
    splits = {"train": "train+restval", "validation": "val", "test": "test"}
    return FlattenedSource(TfdsSource("coco_captions", splits, fields=("image", "captions/text")), "captions/text", 5)


def translations(pair):
    return TfdsSource(f"wmt14_translate/{pair}", {split: split for split in ("train", "validation", "test")})


def speech():
    folder = data_folder() / "wsj"
    if folder.is_dir():
        return JsonlSource(splits={split: folder / f"{split}.jsonl" for split in ("train", "validation", "test")})
    train = "train_clean100+train_clean360+train_other500"
    splits = {"train": train, "validation": "dev_clean", "test": "test_clean"}
    return TfdsSource("librispeech", splits, fields={"audio": "speech", "text": "text"})


def treebank():
    return PennTreebankSource(data_folder() / "treebank3")


if __name__ == "__main__":
    main(recipe)
