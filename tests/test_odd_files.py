"""Odd files and strings: each gives its expected value, or one line that says what is wrong; nothing is replaced."""

import numpy as np
import pytest

from multimodel import Vocabulary
from multimodel.tasks import Audio, Image, Text
from multimodel.tasks.features import UnreadableInputError
from tests.odd_files import CLIPS, IMAGES, RATE, TEXTS

IMAGE, AUDIO = Image("image", 8, 8), Audio("audio", RATE, 1.0)


def test_there_are_many():
    assert len(IMAGES) + len(CLIPS) + len(TEXTS) >= 80


def examine(feature, odd, folder):
    """By a path, and by bytes, which give the same."""
    path = folder / f"file{odd.suffix}"
    path.write_bytes(odd.content)
    if odd.message:
        for value in (str(path), odd.content):
            with pytest.raises(UnreadableInputError) as error:
                feature.examine(value)
            assert odd.message in str(error.value)
            assert "\n" not in str(error.value)
        return None
    value, notes = feature.examine(str(path))
    np.testing.assert_array_equal(feature.read(odd.content), value)
    assert any(odd.odd in note for note in notes) if odd.odd else not notes
    return value


@pytest.mark.parametrize("odd", IMAGES, ids=[odd.name for odd in IMAGES])
def test_a_picture(odd, tmp_path):
    value = examine(IMAGE, odd, tmp_path)
    if value is not None:
        assert value.shape == odd.expected.shape
        assert value.dtype == np.uint8
        assert np.abs(value.astype(int) - odd.expected).max() <= odd.tolerance
        assert IMAGE.encode([value])[0].shape == (1, 8, 8, 3)


@pytest.mark.parametrize("odd", CLIPS, ids=[odd.name for odd in CLIPS])
def test_a_clip(odd, tmp_path):
    value = examine(AUDIO, odd, tmp_path)
    if value is not None:
        assert value.dtype == np.float32
        if odd.expected is not None:
            assert len(value) == len(odd.expected)
            edge = len(value) // 10  # where a filter has not settled
            inside = slice(edge, len(value) - edge or None)
            np.testing.assert_allclose(value[inside], odd.expected[inside], atol=odd.tolerance)
        assert AUDIO.encode([value])[0].shape == (1, RATE)


@pytest.fixture(scope="module")
def vocabulary():
    made = Vocabulary(400)
    made.train(["the cat sat on the mat", "a dog and a cat", "numbers 1 2 3"] * 20)
    return made


@pytest.mark.parametrize("text", TEXTS, ids=[repr(text[:20]) for text in TEXTS])
def test_any_text_comes_back(vocabulary, text):
    feature = Text("text", vocabulary, 1000)
    assert feature.read(text) == text
    assert feature.read(text.encode()) == text
    ids, lengths = vocabulary.encode([text]), feature.encode([text])[1]
    assert vocabulary.decode(ids.to_tensor()).numpy()[0].decode() == text
    assert int(lengths[0]) == int(ids.row_lengths()[0])


def test_a_line_of_a_megabyte_comes_back_or_is_refused(vocabulary):
    text = "the cat sat on the mat. " * 50_000
    assert vocabulary.decode(vocabulary.encode([text]).to_tensor()).numpy()[0].decode() == text
    cut, lengths = Text("text", vocabulary, 10).encode([text])
    assert cut.shape == (1, 10)
    assert lengths[0] > 100_000
    assert Text("text", vocabulary, 10, too_long="refuse").refused(lengths).tolist() == [True]


def test_normalization_is_asked_for(vocabulary):
    text = "e\u0301 ﬁ"
    assert Text("text", vocabulary, 9).read(text) == text
    assert Text("text", vocabulary, 9, normalization="NFC").read(text) == "\u00e9 ﬁ"
    assert Text("text", vocabulary, 9, normalization="NFKC").read(text) == "\u00e9 fi"


@pytest.mark.parametrize(
    ("value", "message"),
    [(b"caf\xe9", "UTF-8"), ("\ud800", "lone surrogates"), (7, "must be a str"), (None, "must be a str")],
)
def test_what_is_no_text_is_refused(vocabulary, value, message):
    with pytest.raises(UnreadableInputError, match=message):
        Text("text", vocabulary, 9).read(value)
