"""Images, clips and labels: read, encoded, or refused in one line."""

import io

import numpy as np
import PIL.Image
import pytest
import soundfile

from multimodel import Vocabulary
from multimodel.tasks import Audio, Image, Label, Text
from multimodel.tasks.features import UnreadableInputError, from_json, to_json

IMAGE, AUDIO = Image("image", 8, 8), Audio("audio", 8000, 0.5)


def png(picture, kind="PNG"):
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def wav(samples, rate=8000, kind="WAV"):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind)
    return file.getvalue()


PICTURE = PIL.Image.fromarray(np.arange(192, dtype="uint8").reshape(8, 8, 3))


@pytest.mark.parametrize("form", ["path", "bytes", "pil", "array"])
def test_an_image_reads_the_same_in_every_form(form, tmp_path):
    (tmp_path / "p.png").write_bytes(png(PICTURE))
    value = {
        "path": str(tmp_path / "p.png"),
        "bytes": png(PICTURE),
        "pil": PICTURE,
        "array": np.asarray(PICTURE),
    }[form]
    np.testing.assert_array_equal(IMAGE.read(value), np.asarray(PICTURE))


def test_an_image_is_scaled_to_the_task():
    encoded, lengths = IMAGE.encode([np.full((30, 50, 3), 77, "uint8"), np.asarray(PICTURE)])
    assert encoded.shape == (2, 8, 8, 3)
    assert encoded.dtype == np.uint8
    assert lengths is None
    assert (encoded[0] == 77).all()
    np.testing.assert_array_equal(encoded[1], np.asarray(PICTURE))


def test_grey_arrays_become_rgb():
    assert IMAGE.read(np.zeros((4, 5), "uint8")).shape == (4, 5, 3)


def test_sixteen_bits_are_scaled_and_transparency_is_white():
    deep = PIL.Image.fromarray(np.array([[0, 257, 25700, 65535]], "uint16"))
    assert IMAGE.read(png(deep))[0, :, 0].tolist() == [0, 1, 100, 255]
    clear = PIL.Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    clear.putpixel((1, 0), (255, 0, 0, 255))
    assert IMAGE.read(png(clear)).tolist() == [[[255, 255, 255], [255, 0, 0]]]


def test_broken_bytes_never_escape():
    """Thousands of damaged files of every kind are read or refused, never anything else."""
    random = np.random.default_rng(0)
    kinds = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP")
    wholes = [(IMAGE, png(PICTURE, kind)) for kind in kinds] + [(AUDIO, wav(np.zeros(99, "int16")))]
    for feature, whole in wholes:
        for _ in range(200):
            content = bytearray(whole)
            for place in random.integers(0, len(content), 5):
                content[place] = random.integers(256)
            try:
                feature.read(bytes(content[: random.integers(1, len(content) + 1)]))
            except UnreadableInputError as error:
                assert "\n" not in str(error)


@pytest.mark.parametrize(
    "value",
    [b"", b"no picture", png(PICTURE)[:50], "missing.png", ".", 7, np.zeros((8, 8)), np.zeros((0, 8), "uint8"), "a\0b"],
    ids=["empty", "text", "cut", "missing", "folder", "number", "float array", "no pixels", "NUL path"],
)
def test_a_broken_image_is_refused_in_one_line(value):
    with pytest.raises(UnreadableInputError) as error:
        IMAGE.read(value)
    assert "\n" not in str(error.value)


def test_a_clip_reads_the_same_in_every_form(tmp_path):
    samples = np.round(np.sin(np.arange(900) / 9) * 16384).astype("int16")
    (tmp_path / "c.wav").write_bytes(wav(samples))
    expected = samples / np.float32(32768)
    for value in (str(tmp_path / "c.wav"), wav(samples), wav(samples, kind="FLAC"), samples, expected):
        np.testing.assert_allclose(AUDIO.read(value), expected, atol=1e-6)


def test_a_clip_is_mixed_down_before_it_is_resampled():
    tone = np.sin(np.arange(16000) * 2 * np.pi * 200 / 16000).astype("float32") / 2
    stereo = np.stack([tone, np.zeros_like(tone)], axis=1)
    heard = Audio("audio", 8000, 1.0).read(wav(stereo, 16000))
    assert abs(len(heard) - 8000) <= 1
    np.testing.assert_allclose(heard[1000:-1000], tone[::2][1000:-1000] / 2, atol=0.01)


def test_clips_are_padded_and_cut():
    encoded, lengths = AUDIO.encode([np.ones(3, "float32"), np.ones(9000, "float32")])
    assert encoded.shape == (2, 4000)
    assert (encoded > 0).sum(1).tolist() == [3, 4000]
    assert encoded.max() == 32767  # full scale does not wrap around
    assert lengths.tolist() == [3, 9000]


@pytest.mark.parametrize(
    "value",
    [b"", b"RIFFno", wav(np.zeros(0, "float32")), "missing.wav", np.zeros((2, 2), "float32"), np.array([np.nan])],
    ids=["empty", "text", "no samples", "missing", "two channels", "NaN"],
)
def test_a_broken_clip_is_refused_in_one_line(value):
    with pytest.raises(UnreadableInputError) as error:
        AUDIO.read(value)
    assert "\n" not in str(error.value)


def test_labels():
    label = Label("name", ("cat", "dog"))
    encoded, _ = label.encode(["dog", "cat"])
    assert encoded.numpy().tolist() == [[1], [0]]
    assert label.decode(encoded.numpy()) == ["dog", "cat"]
    with pytest.raises(UnreadableInputError, match="one of cat, dog. Received: 'cow'"):
        label.read("cow")


def test_features_go_through_json():
    vocabulary = Vocabulary(400, "words")
    for feature in (IMAGE, AUDIO, Label("name", ("a", "b")), Text("t", vocabulary, 5)):
        assert from_json(to_json(feature), {"words": vocabulary}) == feature
