"""Features: one field of a raw example, from a file or value to arrays and back.

A feature works in two steps. `examine` turns what a user has (a path, bytes, a value) into the canonical value by
robust libraries, and tells what is odd about it; `read` is that value alone, and `raw` makes a file's bytes of it
again. `encode` turns canonical values into arrays, in one function for every use, so that training and prediction
cannot differ.
"""

import dataclasses
import io
import pathlib
import unicodedata
from typing import Any, ClassVar, Literal

import numpy as np
import PIL.Image
import soundfile
import tensorflow as tf

from multimodel.errors import UserError, unknown
from multimodel.tasks.audio_files import decode_audio
from multimodel.tasks.image_files import decode_image, to_rgb
from multimodel.tasks.vocabulary import Vocabulary


class UnreadableInputError(UserError):
    """An input that a feature cannot read; the message is one line that says what it is and why."""


class Feature:
    """What all features share.

    `examine(value)` gives the canonical value and a list of what is odd about it, one str each, or raises an
    UnreadableInputError.
    """

    examine: Any
    shape: Any
    too_long: Any = "cut"

    def read(self, value):
        """The canonical value."""
        return self.examine(value)[0]

    def refused(self, lengths):
        """Which rows are longer than the feature takes and not to be cut: boolean `(b,)`, or False where none can be.

        Args:
            lengths: those that `encode` gave, or None.
        """
        if lengths is None or self.too_long == "cut":
            return False
        return np.asarray(lengths) > self.shape[0]

    def _check_too_long(self):
        if self.too_long not in ("cut", "refuse"):
            raise unknown("too_long", self.too_long, ("cut", "refuse"))


@dataclasses.dataclass(frozen=True)
class Text(Feature):
    """A string as subword ids, the end id last.

    Args:
        field: key of the raw example.
        vocabulary: shared by all features that should share their nets.
        max_length: ids at most, the end included.
        normalization: Unicode's "NFC" or "NFKC", applied when text is read; None leaves every character as it is.
        too_long: "cut" or "refuse" text of more ids.

    Raises:
        UserError: if `normalization` or `too_long` is none of these.
    """

    field: str
    vocabulary: Vocabulary
    max_length: int
    normalization: Literal["NFC", "NFKC"] | None = None
    too_long: str = "cut"

    modality: ClassVar = "text"
    dtype: ClassVar = "int32"

    def __post_init__(self):
        self._check_too_long()
        if self.normalization not in (None, "NFC", "NFKC"):
            raise unknown("normalization", self.normalization, ("NFC", "NFKC"))

    @property
    def net(self):
        return self.vocabulary.name

    @property
    def shape(self):
        return (self.max_length,)

    @property
    def num_classes(self):
        return self.vocabulary.size

    def examine(self, value):
        """A str, or UTF-8 bytes -> str."""
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError as error:
                raise UnreadableInputError(f"text must be UTF-8 ({error.reason} at byte {error.start})") from None
        if not isinstance(value, str):
            raise UnreadableInputError(f"text must be a str. Received: {type(value).__name__}")
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise UnreadableInputError("text must be Unicode without lone surrogates")
        odd = [] if value.strip() else ["no text but spaces" if value else "empty text"]
        if "\ufffd" in value:
            odd.append("holds U+FFFD, the sign of a former wrong encoding")
        return unicodedata.normalize(self.normalization, value) if self.normalization else value, odd

    def raw(self, value):
        """A str -> UTF-8 bytes."""
        return value.encode()

    def encode(self, values):
        """Strings `(b,)` -> ids `(b, max_length)` and their lengths before cutting `(b,)`."""
        ids = self.vocabulary.encode(values)
        lengths = tf.cast(ids.row_lengths(), tf.int32)
        cut = tf.minimum(lengths, self.max_length)
        ids = ids.to_tensor(shape=(None, self.max_length))
        last = tf.range(self.max_length) == cut[:, None] - 1
        return tf.where(last, 1, ids), lengths

    def decode(self, ids):
        """Ids `(b, m)` -> list of str."""
        return [text.decode() for text in self.vocabulary.decode(ids).numpy()]


@dataclasses.dataclass(frozen=True)
class Image(Feature):
    """A picture, scaled to one size.

    Args:
        field: key of the raw example.
        height, width: in pixels.
    """

    field: str
    height: int
    width: int

    modality: ClassVar = "image"
    dtype: ClassVar = "uint8"
    net: ClassVar = "image"

    @property
    def shape(self):
        return (self.height, self.width, 3)

    def examine(self, value):
        """A path, encoded bytes, a PIL image or a uint8 array `(h, w)`, `(h, w, 3)` -> RGB uint8 `(h, w, 3)`."""
        if isinstance(value, np.ndarray):
            if (
                value.dtype != np.uint8
                or value.ndim not in (2, 3)
                or value.shape[2:] not in ((), (3,))
                or not value.size
            ):
                raise UnreadableInputError(
                    f"an image array must be uint8 (h, w) or (h, w, 3). Received: {value.dtype} {value.shape}"
                )
            return value if value.ndim == 3 else np.repeat(value[..., None], 3, axis=2), []
        if isinstance(value, PIL.Image.Image):
            try:
                return to_rgb(value), []
            except Exception as error:  # as of files: a picture is decoded when its pixels are first needed
                raise UnreadableInputError(f"not a readable image ({_one_line(error)})") from None
        return _decoded(value, "image", decode_image)

    def raw(self, value):
        """RGB uint8 `(h, w, 3)` -> the bytes of a PNG file of these pixels."""
        file = io.BytesIO()
        PIL.Image.fromarray(value).save(file, "PNG", compress_level=1)
        return file.getvalue()

    def encode(self, values):
        """List of RGB uint8 `(h, w, 3)` -> uint8 `(b, height, width, 3)`, and None since no length varies."""
        return np.stack([self._encode_one(value) for value in values]), None

    def _encode_one(self, value):
        size = (self.height, self.width)
        return value if value.shape[:2] == size else scaled(value, tf.constant(size)).numpy()


@tf.function(input_signature=[tf.TensorSpec((None, None, 3), tf.uint8), tf.TensorSpec((2,), tf.int32)])
def scaled(picture, size):
    """A picture `(h, w, 3)` at another size; compiled, so that several threads scale at once."""
    resized = tf.image.resize(picture, size, antialias=True)
    return tf.cast(tf.clip_by_value(tf.round(resized), 0, 255), tf.uint8)


@dataclasses.dataclass(frozen=True)
class Audio(Feature):
    """A clip, mixed down to one channel, resampled to one rate; a shorter clip is padded, and silence is a clip.

    Args:
        field: key of the raw example; a value that is an array counts as sampled at `sample_rate`.
        sample_rate: samples per second; None reads every clip at its own rate, and such clips cannot be encoded.
        max_seconds: longest clip.
        too_long: "cut" or "refuse" a longer one.

    Raises:
        UserError: if `too_long` is none of these.
    """

    field: str
    sample_rate: int | None
    max_seconds: float
    too_long: str = "cut"

    modality: ClassVar = "audio"
    dtype: ClassVar = "int16"
    net: ClassVar = "audio"

    def __post_init__(self):
        self._check_too_long()

    @property
    def shape(self):
        return (round(self.sample_rate * self.max_seconds),) if self.sample_rate else ()

    def examine(self, value):
        """A path, encoded bytes, or an array of samples (float from -1 to 1, or int16) -> float32 `(samples,)`.

        Of a clip much longer than `max_seconds` only the beginning is read.
        """
        if isinstance(value, np.ndarray):
            if value.ndim != 1 or value.dtype not in (np.int16, np.float32, np.float64):
                raise UnreadableInputError(
                    f"an audio array must be int16 or float (samples,). Received: {value.dtype} {value.shape}"
                )
            samples = value / np.float32(32768) if value.dtype == np.int16 else value.astype("float32")
            odd = [] if samples.any() else ["silent"]
        else:
            samples, odd = _decoded(
                value, "audio", lambda file, path: decode_audio(file, self.sample_rate, self.max_seconds, path)
            )
        if not samples.size:
            raise UnreadableInputError("audio must have at least one sample. Received: 0 samples")
        if not np.isfinite(samples).all():
            raise UnreadableInputError("audio must be finite. Received: NaN or infinite samples")
        return samples, odd

    def raw(self, value):
        """float32 `(samples,)` -> the bytes of a WAV file of these samples."""
        file = io.BytesIO()
        soundfile.write(file, value, self.sample_rate, format="WAV", subtype="FLOAT")
        return file.getvalue()

    def encode(self, values):
        """List of float32 `(samples,)` -> 16-bit `(b, max samples)` and their lengths before cutting `(b,)`."""
        longest = self.shape[0]
        rows = np.zeros((len(values), longest), "int16")
        for row, value in zip(rows, values, strict=True):
            row[: len(value)] = np.clip(np.round(value[:longest] * 32768), -32768, 32767)
        return rows, np.array([len(value) for value in values], "int32")


@dataclasses.dataclass(frozen=True)
class Label(Feature):
    """One of a fixed set of names.

    Args:
        field: key of the raw example.
        names: of the classes.
    """

    field: str
    names: tuple[str, ...]

    modality: ClassVar = "label"
    max_length: ClassVar = 1

    @property
    def num_classes(self):
        return len(self.names)

    def examine(self, value):
        """A class name -> itself.

        Raises:
            UnreadableInputError: if it is none of `names`.
        """
        if value not in self.names:
            names = ", ".join(self.names) if len(self.names) <= 20 else f"the {len(self.names)} that the task names"
            raise UnreadableInputError(f"a label must be one of {names}. Received: {value!r}")
        return value, []

    def encode(self, values):
        """List of names -> int32 `(b, 1)`, and None since no length varies."""
        return tf.constant([[self.names.index(value)] for value in values], tf.int32), None

    def decode(self, ids):
        """Class numbers `(b, 1)` -> list of names."""
        return [self.names[number] for number in np.asarray(ids)[:, 0]]


KINDS: dict[str, Any] = {kind.modality: kind for kind in (Text, Image, Audio, Label)}


def to_json(feature):
    """A dict of JSON values; a vocabulary is named, not contained."""
    values = {name: getattr(feature, name) for name in (f.name for f in dataclasses.fields(feature))}
    if feature.modality == "text":
        values["vocabulary"] = feature.vocabulary.name
    return {"modality": feature.modality} | values


def from_json(values, vocabularies):
    """The feature that `to_json` described; `vocabularies` is `{name: Vocabulary}`."""
    values = dict(values)
    kind = KINDS[values.pop("modality")]
    if "vocabulary" in values:
        values["vocabulary"] = vocabularies[values["vocabulary"]]
    if "names" in values:
        values["names"] = tuple(values["names"])
    return kind(**values)


def vocabularies_of(features):
    """The distinct vocabularies of some features, in order."""
    return list({id(f.vocabulary): f.vocabulary for f in features if f.modality == "text"}.values())


def _decoded(value, kind, decode):
    """What `decode(file, path)` gives of a path or bytes; every failure becomes one line that says what is wrong."""
    if not isinstance(value, bytes | str | pathlib.PurePath):
        raise UnreadableInputError(f"{kind} must be a path, bytes or an array. Received: {type(value).__name__}")
    path = "" if isinstance(value, bytes) else value
    try:
        file = io.BytesIO(value) if isinstance(value, bytes) else pathlib.Path(path).open("rb")  # noqa: SIM115
    except (OSError, ValueError) as error:
        raise UnreadableInputError(getattr(error, "strerror", None) or _one_line(error)) from None
    with file:
        if not file.read(1):
            raise UnreadableInputError(f"empty {kind} file")
        file.seek(0)
        try:
            return decode(file, path)
        except Exception as error:
            # Pillow and libsndfile raise many types on broken files, struct.error and their own among them.
            raise UnreadableInputError(f"not a readable {kind} file ({_one_line(error)})") from None


def _one_line(error):
    return " ".join(str(error).split()) or type(error).__name__
