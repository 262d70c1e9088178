"""Six tasks over text, image and audio, trained jointly on a laptop."""

from multimodel import Body, Mixture, Recipe, Task, main
from multimodel.tasks import Audio, Image, Label, Text, Vocabulary, animals, numbers, python_ast, scenes, speech
from multimodel.tasks.animals import NAMES
from modality_nets import AudioInputNet


def recipe():
    words = Vocabulary(1000)
    pairs = numbers()
    english, german = Text("en", words, 12), Text("de", words, 12)
    mixture = {
        Task("animals", animals(), Image("image", 28, 28), Label("name", NAMES), metrics=("accuracy",)): 64,
        Task("captions", scenes(), Image("image", 64, 64), Text("caption", words, 12), ("exact", "bleu", "cer"), "english"): 32,
        Task("speech", speech(), Audio("audio", 8000, 1.6), Text("text", words, 12), ("exact", "wer", "cer"), "english"): 32,
        Task("numbers_en_de", pairs, english, german, ("exact", "bleu", "chrf"), "german"): 32,
        Task("numbers_de_en", pairs, german, english, ("exact", "bleu", "chrf"), "english"): 32,
        Task("python_ast", python_ast(), Text("statement", words, 32), Text("tree", words, 24), ("exact", "bleu"), "tree"): 32,
    }
    return Recipe("quickstart", Mixture(mixture), Body.small(128), steps=600, batch_size=224, nets={"audio_input": AudioInputNet(128, 8000, hop_seconds=0.0125)})


if __name__ == "__main__":
    main(recipe)
