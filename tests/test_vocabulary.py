"""Any string survives the vocabulary."""

import sys

import keras
import numpy as np
import pytest

from multimodel import UserError, Vocabulary
from multimodel.tasks.features import Text, UnreadableInputError

STRINGS = {
    "empty": "",
    "space": " ",
    "leading and trailing": "  a  b ",
    "newline": "a\nb\r\n",
    "only newline": "\n",
    "NUL": "\0a\0",
    "tab": "\t",
    "emoji": "🦒👩‍🚀",
    "right to left": "שלום עולם",
    "combining": "e\u0301 é",
    "zero width": "a\u200bb\u00a0c\ufeff",
    "SentencePiece's own space": "a\u2581b \u2581",
    "the escape and what follows it": "\ue000 \ue000e \ue000s \u2581e",
    "control symbols": "<s></s><pad><unk><0x41>",
    "replacement": "\ufffd",
    "highest": chr(sys.maxunicode),
    "long": "hello wörld " * 9000,
}


@pytest.fixture(scope="module")
def vocabulary():
    made = Vocabulary(400)
    made.train(["hello world, hello there", "the cat sat on the mat"] * 20)
    return made


@pytest.mark.parametrize("text", STRINGS.values(), ids=STRINGS.keys())
def test_round_trip(vocabulary, text):
    ids = vocabulary.encode([text]).to_tensor()
    assert vocabulary.decode(ids).numpy()[0].decode() == text
    assert ids[0, -1] == 1
    assert int(np.max(ids)) < vocabulary.size


@pytest.mark.parametrize("text", ["a b", " a", "a ", "  ", "\u2581 \u2581"])
def test_a_vocabulary_of_texts_without_a_space_keeps_spaces(text):
    vocabulary = Vocabulary(320)
    vocabulary.train(["bonjour"] * 20)
    assert vocabulary.decode(vocabulary.encode([text]).to_tensor()).numpy()[0].decode() == text


def test_saved_is_loaded(vocabulary):
    again = Vocabulary(400)
    again.load(vocabulary.save())
    np.testing.assert_array_equal(again.encode(["hello 🦒"]).to_tensor(), vocabulary.encode(["hello 🦒"]).to_tensor())


def test_training_is_deterministic(vocabulary):
    again = Vocabulary(400)
    again.train(["hello world, hello there", "the cat sat on the mat"] * 20)
    assert again.save() == vocabulary.save()


def test_nothing_is_decoded_after_the_end(vocabulary):
    ids = vocabulary.encode(["cat"]).to_tensor().numpy()
    assert vocabulary.decode(np.concatenate([ids, [[9, 9, 1]]], axis=1)).numpy()[0] == b"cat"
    assert vocabulary.decode([[0, 0]]).numpy()[0] == b""


def test_bytes_that_are_no_text_become_a_replacement(vocabulary):
    ids = vocabulary.encode(["🦒"]).to_tensor().numpy()
    assert Text("t", vocabulary, 9).decode(ids[:, 1:]) == ["\ufffd" * 3]  # of four bytes the first is gone


def test_pieces_are_the_text_in_parts(vocabulary):
    pieces = vocabulary.pieces(vocabulary.encode(["  hello there ~"])[0])
    assert "".join(pieces) == "  hello there <0x7E></s>"
    assert " there" in pieces


def test_ids_that_stand_for_nothing_have_a_piece(vocabulary):
    """An output net has as many classes as were asked for; the text may have given fewer."""
    assert vocabulary.pieces([10**6, -5, 1]) == ["<unk>", "<unk>", "</s>"]


def test_an_untrained_vocabulary_says_so():
    with pytest.raises(UserError, match=r"empty vocabulary 'text'.*train\(texts\)"):
        Vocabulary(400).encode(["a"])


def test_a_vocabulary_needs_room_for_bytes():
    with pytest.raises(UserError, match="Received: size=200"):
        Vocabulary(200).train(["a"])


def test_long_text_is_cut_and_counted(vocabulary):
    ids, lengths = Text("t", vocabulary, 6).encode(["hello " * 1000, "cat"])
    assert ids.shape == (2, 6)
    assert lengths[0] > 6 >= lengths[1]
    assert ids[0, -1] == 1
    assert Text("t", vocabulary, 6).decode(ids[1:]) == ["cat"]


@pytest.mark.parametrize("value", [b"\xff\xfe", "\ud800", 3, None])
def test_what_is_no_text_is_refused(vocabulary, value):
    with pytest.raises(UnreadableInputError, match="text must be"):
        Text("t", vocabulary, 6).read(value)


def test_a_random_seed_takes_no_vocabulary_away(vocabulary):
    """TensorFlow drops tokenizers when a seed is set: a loaded model must still answer."""
    before = vocabulary.encode(["one two"]).to_list()
    keras.utils.set_random_seed(3)
    assert vocabulary.encode(["one two"]).to_list() == before
    keras.utils.set_random_seed(4)
    assert vocabulary.decode(before).numpy().tolist() == [b"one two"]
