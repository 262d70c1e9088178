"""Six tasks over text, images and audio in one small model.

What:      image -> label, image -> English, speech -> English, numbers English <-> German, Python -> syntax tree
Paper:     arXiv 1706.05137, its arrangement at 128 channels: 3 + 1 + 2 ConvBlocks, 4 experts of which 2 are taken
Data:      packages of the extra `quickstart` and the standard library, built into the cache in half a minute
Hardware:  two cores without a GPU; 5 to 8 minutes of training, a minute of export, 3 GB of memory
Scores:    README.md, measured
Command:   multimodel train quickstart

The vision tasks learn slowest and text fastest, so pictures of single animals, which cost little, have the largest
share, and numbers the smallest. A peak learning rate of 4e-3 reached 0.66 on captions where 2e-3 reached 0.55 and
8e-3 0.33 (250 steps of the two vision tasks). Speech and syntax trees are padded to one shape, numbers to that of
captions, so that they share passes through the body: two decoder passes instead of five are faster to trace and no
slower to run. With numbers padded as syntax trees are, a step took 546 ms instead of 506.
"""

from modality_nets import AudioInputNet
from multimodel import Body, Mixture, Recipe, Task, Vocabulary, main
from multimodel.tasks import Audio, Image, Label, Text, animals, numbers, python_ast, scenes, speech
from multimodel.tasks.animal_pictures import NAMES
from multimodel.tasks.spoken_words import SAMPLE_RATE

DIM = 128
N, M = 32, 28  # positions of inputs and targets of syntax trees; a clip of 1.6 s is 32 positions too
SHORT_N, SHORT_M = 16, 12  # of number words; a scene is 16 positions too, and a caption at most 12


def recipe():
    words, nodes = Vocabulary(1000), Vocabulary(400, "tree", mixed=True)
    digits = numbers()
    english, german = Text("en", words, SHORT_N), Text("de", words, SHORT_M)
    german_in, english_out = Text("de", words, SHORT_N), Text("en", words, SHORT_M)
    picture, scene = Image("image", 28, 28), Image("image", 64, 64)
    clip = Audio("audio", SAMPLE_RATE, max_seconds=1.6)
    statement, tree = Text("statement", words, N), Text("tree", nodes, M)
    translation = ("exact", "bleu", "chrf")
    return Recipe(
        name="quickstart",
        mixture=Mixture(
            {
                Task("animals", animals(), picture, Label("name", NAMES), ("accuracy",)): 8,
                Task(
                    "captions", scenes(), scene, Text("caption", words, SHORT_M), ("exact", "bleu", "cer"), "english"
                ): 4,
                Task("speech", speech(), clip, Text("text", words, M), ("exact", "wer", "cer"), "english"): 2,
                Task("numbers_en_de", digits, english, german, translation, "german"): 1,
                Task("numbers_de_en", digits, german_in, english_out, translation, "english"): 1,
                Task("python_ast", python_ast(), statement, tree, ("exact", "bleu"), "tree"): 4,
            }
        ),
        body=Body.small(DIM),
        nets={"audio_input": AudioInputNet(DIM, SAMPLE_RATE, hop_seconds=0.0125)},
        batch_size=320,
        steps=700,
        export=True,
        learning_rate=4e-3,
        description="six tasks over text, images and audio, on a laptop",
        data="200 MB in the cache, from packages of the extra 'quickstart'; speech and numbers are synthetic",
        time="5 to 8 minutes of training on two cores",
        scores={
            "animals": 0.97,
            "captions": 0.92,
            "speech": 0.98,
            "numbers_en_de": 0.99,
            "numbers_de_en": 0.98,
            "python_ast": 0.86,
        },
    )


if __name__ == "__main__":
    main(recipe)
