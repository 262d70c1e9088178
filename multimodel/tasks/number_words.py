"""Numbers in words, English and German, from the package num2words (LGPL). Synthetic, and exact."""

import random

from multimodel.tasks.prepared import PreparedSource, require_extra

HELD_OUT = {"test": 500, "validation": 500}


def numbers():
    """Fields `en` and `de`, 0 to 9999 in words; both directions share the splits."""

    def build(progress):
        with require_extra("quickstart"):
            from num2words import num2words
        order = list(range(10000))
        random.Random("numbers").shuffle(order)
        words = []
        for done, number in enumerate(order, 1):
            words.append({language: num2words(number, lang=language) for language in ("en", "de")})
            progress(done, len(order))
        splits, start = {}, 0
        for split, size in (*HELD_OUT.items(), ("train", len(words))):
            part = words[start : start + size]
            splits[split] = {language: [pair[language] for pair in part] for language in ("en", "de")}
            start += size
        return splits

    return PreparedSource("numbers", 1, ("train", "validation", "test"), build)
