"""Vocabulary: text to subword ids and back, for any string."""

import hashlib
import io
import re
from typing import Any

import sentencepiece
import tensorflow as tf
import tensorflow_text

from multimodel.errors import UserError
from multimodel.quiet import no_stderr

PADDING, END, UNKNOWN = 0, 1, 2

# SentencePiece writes a space as U+2581 and reads every U+2581 back as a space. A real U+2581 is written as an escape,
# and so is the escape character itself; each is followed by a letter, so that both replacements can be undone in turn.
_ESCAPES = (("\ue000", "\ue000e"), ("\u2581", "\ue000s"))


class Vocabulary:
    """Subwords learned from text, with bytes to fall back on, so that every Unicode string survives a round trip.

    It is empty until `train` (training does this for a recipe's vocabularies) or `load` fills it.

    Args:
        size: subwords at most, the 256 bytes, padding (id 0) and end (id 1) included.
        name: tells the vocabularies of a recipe apart; nets are shared per vocabulary.
        mixed: whether a piece may mix letters with signs, as `(Name)` does. Mixed pieces make shorter sequences of a
            language with few words and many brackets; of natural text and programs they make rarer ones.
    """

    def __init__(self, size, name="text", mixed=False):
        if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
            raise UserError(
                f"A vocabulary's name is letters, digits and underscores. Received: name={name!r}. Choose another."
            )
        self.size, self.name, self.mixed = size, name, mixed
        self._model = b""
        self._tokenizer: Any = None

    @property
    def trained(self):
        return bool(self._model)

    def train(self, texts):
        """Learns byte-pair subwords from an iterable of strings.

        Raises:
            UserError: if `size` leaves no room for subwords, or all strings are empty.
        """
        if self.size <= 300:
            raise UserError(
                f"A vocabulary holds 256 bytes and some subwords. Received: size={self.size}. Choose a size above 300."
            )
        texts = [_escape(text) for text in texts]
        if not any(texts):
            raise UserError(
                f"A vocabulary learns from text. Received: {len(texts)} empty strings for vocabulary {self.name!r}. "
                f"Check the field that its features read."
            )
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            vocab_size=self.size,
            model_type="bpe",
            byte_fallback=True,
            character_coverage=0.9999,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            split_by_unicode_script=not self.mixed,
            max_sentence_length=1 << 20,
            pad_id=PADDING,
            eos_id=END,
            unk_id=UNKNOWN,
            bos_id=-1,
            hard_vocab_limit=False,
            num_threads=1,
            minloglevel=2,
        )
        self.load(model.getvalue())

    def load(self, model):
        """Takes over a trained model: the bytes that `save` gave.

        Raises:
            ValueError: if they are damaged.
        """
        self._model = model
        # Tokenizers of one name are one in what is loaded from SavedModels: the last of them.
        name = f"sentencepiece_{hashlib.sha256(model).hexdigest()[:16]}"
        try:
            with no_stderr():  # tensorflow-text notes each model that normalises nothing
                self._tokenizer = tensorflow_text.SentencepieceTokenizer(
                    model, out_type=tf.int32, add_eos=True, name=name
                )
                self._tokenizer.tokenize([""])
        except tf.errors.OpError:
            raise ValueError(f"not a whole vocabulary model: {len(model)} bytes") from None

    def save(self):
        """The trained model as bytes."""
        self._require_trained()
        return self._model

    def encode(self, texts):
        """Strings `(b,)` -> ragged ids `(b, None)`, each row ending with id 1."""
        self._require_trained()
        texts = tf.convert_to_tensor(texts)
        for character, escape in _ESCAPES:
            texts = tf.strings.regex_replace(texts, character, escape)
        return self._with_tokenizer(lambda tokenizer: tokenizer.tokenize(texts))

    def decode(self, ids):
        """Ids `(b, m)` -> string tensor `(b,)`; id 1 ends a row, and bytes that are no UTF-8 become U+FFFD."""
        self._require_trained()
        ids = tf.cast(ids, tf.int32)
        size = self._with_tokenizer(lambda tokenizer: tokenizer.vocab_size())  # `self.size` is what was asked for
        known = (ids != PADDING) & (ids < size)
        before_end = tf.cumsum(tf.cast(ids == END, tf.int32), axis=1) == 0
        pieces = tf.ragged.boolean_mask(ids, before_end & known)
        texts = self._with_tokenizer(lambda tokenizer: tokenizer.detokenize(pieces))
        texts = tf.strings.regex_replace(texts, "\u2581", " ")  # a space in bytes: no text of training had one
        for character, escape in reversed(_ESCAPES):
            texts = tf.strings.regex_replace(texts, escape, character)
        return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")

    @property
    def tokenizer(self):
        """What tensorflow-text has of it, for a SavedModel to keep."""
        self._require_trained()
        return self._tokenizer

    def pieces(self, ids):
        """Ids `(m,)` -> list of str, what each of them stands for: `<0xE2>` for a byte, `</s>` for the end, `<unk>` for
        an id that stands for nothing."""
        self._require_trained()
        ids, size = tf.convert_to_tensor(ids, tf.int32), self._with_tokenizer(lambda tokenizer: tokenizer.vocab_size())
        ids = tf.where((ids >= 0) & (ids < size), ids, UNKNOWN)  # of others, tensorflow-text reads beyond its table
        texts = self._with_tokenizer(lambda tokenizer: tokenizer.id_to_string(ids)).numpy()
        return [text.decode().replace("\u2581", " ") for text in texts]

    def _with_tokenizer(self, call):
        """`call(tokenizer)`; TensorFlow drops the tokenizer's model whenever a random seed is set."""
        try:
            return call(self._tokenizer)
        except tf.errors.NotFoundError:
            self.load(self._model)
            return call(self._tokenizer)

    def _require_trained(self):
        if not self.trained:
            raise UserError(
                f"A vocabulary must be trained before it is used. Received: an empty vocabulary {self.name!r}. "
                f"Call train(texts) or load(model)."
            )


def _escape(text):
    for character, escape in _ESCAPES:
        text = text.replace(character, escape)
    return text
