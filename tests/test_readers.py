"""Readers in a graph against Python's: odd files, damaged files, any batch, and a process that has TensorFlow alone."""

import io
import subprocess
import sys

import numpy as np
import PIL.Image
import pytest
import soundfile
import tensorflow as tf

from multimodel import Vocabulary
from multimodel.export.readers import read_inputs
from multimodel.tasks import Audio, Image, Text
from multimodel.tasks.features import UnreadableInputError
from tests.odd_files import CLIPS, IMAGES, RATE, TEXTS, WHOLE_JPEG, clip, picture, saved

PICTURE, CLIP = Image("image", 9, 11), Audio("audio", RATE, 1.0)
NOT_IN_GRAPHS = ("WEBP", "TIFF", "PPM", "ICO", "FLAC", "OGG", "MP3", "AIFF", "ADPCM", "U-LAW")


@pytest.fixture(scope="module")
def vocabulary():
    trained = Vocabulary(400)
    trained.train(TEXTS[:-1] + ["hello world"] * 50)
    return trained


@pytest.fixture(scope="module")
def read(vocabulary):
    """`read(feature, contents)`, compiled once for each feature."""
    graphs = {}

    def read(feature, contents):
        if feature not in graphs:
            signature = [tf.TensorSpec([None], tf.string)]
            graphs[feature] = tf.function(lambda raw: read_inputs(feature, raw), input_signature=signature)
        inputs, lengths = graphs[feature](tf.constant(contents, tf.string))
        return inputs.numpy(), None if lengths is None else lengths.numpy()

    return read


def in_python(feature, content):
    """Encoded input `(...)` and length of one content, or None where Python cannot read it."""
    try:
        inputs, lengths = feature.encode([feature.read(content)])
    except UnreadableInputError:
        return None
    return np.asarray(inputs)[0], None if lengths is None else int(lengths[0])


def compare(read, feature, odd, tolerance):
    expected = in_python(feature, odd.content)
    refused = expected is None or any(kind in odd.name.upper() for kind in NOT_IN_GRAPHS)
    if refused:
        with pytest.raises(tf.errors.InvalidArgumentError, match="row 1: [a-zA-Z]"):
            read(feature, [good(feature), odd.content, good(feature)])
        return
    inputs, lengths = read(feature, [good(feature), odd.content])
    np.testing.assert_allclose(inputs[1].astype(int), expected[0].astype(int), rtol=0, atol=tolerance)
    if lengths is not None:
        assert lengths[1] == expected[1]


def good(feature):
    return picture() if feature is PICTURE else clip(np.zeros(5))


@pytest.mark.parametrize("odd", IMAGES, ids=lambda odd: odd.name)
def test_pictures_are_those_that_python_reads(read, odd):
    compare(read, PICTURE, odd, tolerance=1 if "CMYK" in odd.name else 0)


@pytest.mark.parametrize("odd", CLIPS, ids=lambda odd: odd.name)
def test_clips_are_those_that_python_reads(read, odd):
    resampled = "Hz" in odd.odd or "Hz" in odd.name
    compare(read, CLIP, odd, tolerance=0.02 * 32768 if resampled else 0)


def test_text_is_what_python_reads(read, vocabulary):
    for normalization in (None, "NFC", "NFKC"):
        feature = Text("text", vocabulary, 24, normalization)
        inputs, lengths = read(feature, [text.encode() for text in TEXTS])
        expected, expected_lengths = feature.encode([feature.read(text) for text in TEXTS])
        np.testing.assert_array_equal(inputs, expected)
        np.testing.assert_array_equal(lengths, expected_lengths)


@pytest.mark.parametrize("content", [b"\xff", b"caf\xe9", b"\xed\xa0\x80", b"ok \xc3"])
def test_text_that_is_no_utf8_is_refused_by_its_row(read, vocabulary, content):
    with pytest.raises(tf.errors.InvalidArgumentError, match="row 2: text is not UTF-8"):
        read(Text("text", vocabulary, 24), [b"fine", "\ufffd".encode(), content, content])


def test_what_is_too_long_is_refused_where_it_is_not_cut(read, vocabulary):
    with pytest.raises(tf.errors.InvalidArgumentError, match="row 1: too long, of 4 at most"):
        read(Text("text", vocabulary, 4, too_long="refuse"), [b"a", b"hello world, hello world, hello"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="row 0: too long, of 800 at most"):
        read(Audio("audio", RATE, 0.1, too_long="refuse"), [clip(np.zeros(900))])


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP"])
@pytest.mark.parametrize("size", [(9, 11), (64, 48), (3, 200)])
def test_pictures_of_many_colours(read, kind, size):
    pixels = np.random.default_rng(0).integers(0, 256, (*size, 3), "uint8")
    content = saved(PIL.Image.fromarray(pixels).resize((size[1], size[0])), kind)
    inputs, _ = read(PICTURE, [content])
    np.testing.assert_array_equal(inputs[0], in_python(PICTURE, content)[0])


@pytest.mark.parametrize("rate", [1000, 8000, 11025, 16000, 22050, 44100, 44101, 48000, 96000, 192000])
def test_clips_are_resampled_as_soxr_does(read, rate):
    """A chirp within the band of both rates, with a soft beginning and end: within 40 dB of it, and of one length."""
    times = np.arange(int(0.7 * rate)) / rate
    top = 0.4 * min(rate, RATE)
    wave = np.sin(np.pi * times / times[-1]) ** 2 * np.sin(2 * np.pi * (30 + (top - 30) * times / 1.4) * times)
    content = clip(wave * 0.8, rate, subtype="FLOAT")
    inputs, lengths = read(CLIP, [content])
    expected, length = in_python(CLIP, content)
    assert lengths[0] == length
    assert np.abs(inputs[0].astype(int) - expected).max() < 0.01 * 32768


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP"])
def test_a_damaged_picture_is_named_by_its_row(read, kind):
    whole = saved(PIL.Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), "uint8")), kind)
    for content in (whole[: len(whole) // 2], whole[:30]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="row 3: "):
            read(PICTURE, [picture(), whole, WHOLE_JPEG, content])


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_any_number_of_rows(read, vocabulary, rows):
    words = Text("text", vocabulary, 24)
    for feature, content in ((PICTURE, picture()), (CLIP, clip(np.ones(9) / 2)), (words, b"hello")):
        inputs, _ = read(feature, [content] * rows)
        assert inputs.shape == (rows, *feature.shape)
        assert (inputs == inputs[:1]).all()


def test_mutated_files_give_a_result_or_a_reason(read):
    random = np.random.default_rng(0)
    wholes = [(PICTURE, picture(size=(20, 20), kind=kind)) for kind in ("PNG", "JPEG", "GIF", "BMP")]
    wholes += [(CLIP, clip(np.sin(np.arange(200)), rate)) for rate in (RATE, 44100)]
    for feature, whole in wholes:
        for _ in range(25):
            content = bytearray(whole)
            for place in random.integers(0, min(len(content), 80), 3):
                content[place] = random.integers(256)
            try:
                read(feature, [bytes(content)])
            except tf.errors.InvalidArgumentError as error:
                assert "row 0: " in str(error)


FRESH = """
import sys
import tensorflow as tf, tensorflow_text, numpy as np
assert "multimodel" not in sys.modules
loaded = tf.saved_model.load(sys.argv[1])
for name, file in (("text", sys.argv[2]), ("image", sys.argv[3]), ("audio", sys.argv[4])):
    content = open(file, "rb").read()
    np.save(file + ".npy", loaded.signatures[name](inputs=tf.constant([content]))["read"].numpy())
"""


def test_a_saved_model_reads_without_this_library(vocabulary, tmp_path):
    features = {"text": Text("text", vocabulary, 24, "NFC"), "image": PICTURE, "audio": CLIP}
    contents = {"text": "héllo 👍".encode(), "image": WHOLE_JPEG, "audio": clip(np.sin(np.arange(3000) / 9), 44100)}

    def reader(feature):
        def read_raw(inputs):
            return {"read": read_inputs(feature, inputs)[0]}

        return tf.function(read_raw, input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])

    module = tf.Module()
    module.tokenizer = vocabulary.tokenizer
    tf.saved_model.save(module, tmp_path / "saved", {name: reader(feature) for name, feature in features.items()})
    files = [tmp_path / name for name in contents]
    for file, content in zip(files, contents.values(), strict=True):
        file.write_bytes(content)
    command = [sys.executable, "-c", FRESH, tmp_path / "saved", *files]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for file, (name, content) in zip(files, contents.items(), strict=True):
        expected = in_python(features[name], content)[0].astype(int)
        there = np.load(f"{file}.npy")[0].astype(int)
        np.testing.assert_allclose(there, expected, rtol=0, atol=0.02 * 32768 if name == "audio" else 0)


def test_saved_models_keep_their_vocabularies_apart(tmp_path):
    """Two in one SavedModel, and two SavedModels in one process."""
    texts = {"english": "hello world", "german": "guten tag", "french": "bonjour"}
    vocabularies = {name: Vocabulary(320, name) for name in texts}
    for name, vocabulary in vocabularies.items():
        vocabulary.train([texts[name]] * 20)

    def reader(vocabulary):
        def read_raw(inputs):
            ids = vocabulary.encode(inputs).to_tensor()
            return {"ids": ids, "text": vocabulary.decode(ids)}

        return tf.function(read_raw, input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])

    loaded = []
    for place, names in enumerate([("english", "german"), ("french",)]):
        module = tf.Module()
        module.tokenizers = [vocabularies[name].tokenizer for name in names]
        folder = tmp_path / str(place)
        tf.saved_model.save(module, folder, {name: reader(vocabularies[name]) for name in names})
        loaded.append(tf.saved_model.load(folder))
    for served in (*loaded, *loaded):
        for name, answer in served.signatures.items():
            found = answer(inputs=tf.constant(list(texts.values())))
            expected = vocabularies[name].encode(list(texts.values())).to_tensor()
            np.testing.assert_array_equal(found["ids"], expected)
            assert [text.decode() for text in found["text"].numpy()] == list(texts.values())


def test_wave_files_as_programs_write_them(read):
    """Chunks before and behind the samples, an unknown length as of a stream, and a clip of odd length."""
    plain = clip(np.sin(np.arange(301) / 9) * 0.5, subtype="PCM_U8")
    stray = plain[:12] + b"LIST\x03\0\0\0abc\0" + plain[12:]
    streamed = plain[:40] + b"\xff\xff\xff\xff" + plain[44:]
    for content in (plain, stray, stray + b"junk", streamed):
        inputs, lengths = read(CLIP, [content])
        expected, length = in_python(CLIP, content)
        assert lengths[0] == length
        np.testing.assert_array_equal(inputs[0], expected)
    assert soundfile.info(io.BytesIO(stray)).frames == 301
