"""Odd files and strings, made here, each with what reading it must give.

An `Odd` has a name, a `content` (of a file with `suffix`), and either `expected`, a canonical value, or `message`, part
of the one line that refuses it. `odd` is part of what `multimodel check` says of it.
"""

import dataclasses
import io
import struct
import zlib
from typing import Any

import numpy as np
import PIL.Image
import soundfile

RATE = 8000


@dataclasses.dataclass(frozen=True)
class Odd:
    name: str
    content: Any
    expected: Any = None
    message: str = ""
    odd: str = ""
    suffix: str = ""
    tolerance: float = 0


def picture(mode="RGB", size=(12, 10), colour=(200, 30, 40), kind="PNG", **options):
    return saved(PIL.Image.new(mode, size, colour), kind, **options)


def saved(image, kind="PNG", **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def flat(*colour, size=(12, 10)):
    return np.full((size[1], size[0], 3), colour, "uint8")


def png(width, height, depth, colour_type, rows, chunks=()):
    """A PNG, chunk by chunk: what Pillow does not write."""

    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    parts = [chunk(b"IHDR", header), *(chunk(*c) for c in chunks), chunk(b"IDAT", data), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def deep(values, channels):
    """Rows of a 16-bit PNG whose pixels all hold `values`, 12 x 10."""
    return [np.array(values * 12, ">u2").tobytes()] * 10


def exif(orientation):
    tags = PIL.Image.Exif()
    tags[0x0112] = orientation
    return tags


def half_red():
    """Left half red, right half blue."""
    image = PIL.Image.new("RGB", (16, 8), (250, 0, 0))
    image.paste((0, 0, 250), (8, 0, 16, 8))
    return image


HALF_RED = np.asarray(half_red())
RED, BLUE = (250, 0, 0), (0, 0, 250)


def animation(kind):
    frames = [PIL.Image.new("RGB", (12, 10), colour) for colour in ((250, 0, 0), (0, 250, 0), (0, 0, 250))]
    options = {"lossless": True} if kind == "WEBP" else {}
    return saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)


def clear(kind="PNG", mode="RGBA"):
    """Left half transparent, right half red."""
    image = PIL.Image.new("RGBA", (12, 10), (0, 255, 0, 0))
    image.paste((255, 0, 0, 255), (6, 0, 12, 10))
    return saved(
        image if mode == "RGBA" else image.convert(mode), kind, **({"lossless": True} if kind == "WEBP" else {})
    )


OVER_WHITE = np.concatenate([np.full((10, 6, 3), 255), np.full((10, 6, 3), (255, 0, 0))], axis=1).astype("uint8")
DEEP_COLOUR = [257 * 100 + 120, 257 * 30, 65535]  # the first one is nearer to 100 than to 101
PALETTE = PIL.Image.new("P", (12, 10), 1)
PALETTE.putpalette([0, 0, 0, 200, 30, 40])
TRNS = PALETTE.copy()
WHOLE_JPEG = saved(PIL.Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), "uint8")), "JPEG")

IMAGES = [
    Odd("PNG", picture(), flat(200, 30, 40), suffix=".png"),
    Odd("grey PNG", picture("L", colour=90), flat(90, 90, 90)),
    Odd("grey PNG with alpha", picture("LA", colour=(90, 255)), flat(90, 90, 90)),
    Odd("grey PNG, all clear", picture("LA", colour=(90, 0)), flat(255, 255, 255), odd="put over white"),
    Odd("two-level PNG", picture("1", colour=1), flat(255, 255, 255)),
    Odd("palette PNG", saved(PALETTE), flat(200, 30, 40)),
    Odd("palette PNG with a clear colour", saved(TRNS, transparency=1), flat(255, 255, 255), odd="put over white"),
    Odd("RGBA PNG", clear(), OVER_WHITE, odd="put over white"),
    Odd("half clear", picture("RGBA", colour=(0, 0, 0, 128)), flat(127, 127, 127), odd="put over white"),
    Odd("16-bit grey PNG", png(12, 10, 16, 0, deep([25700], 1)), flat(100, 100, 100), odd="16 bits"),
    Odd("16-bit grey PNG, dark", png(12, 10, 16, 0, deep([257], 1)), flat(1, 1, 1), odd="16 bits"),
    Odd("16-bit grey PNG, rounded", png(12, 10, 16, 0, deep([200], 1)), flat(1, 1, 1), odd="16 bits"),
    Odd("16-bit RGB PNG", png(12, 10, 16, 2, deep(DEEP_COLOUR, 3)), flat(100, 30, 255), odd="16 bits"),
    Odd("16-bit RGBA PNG", png(12, 10, 16, 6, deep([0, 0, 0, 0], 4)), flat(255, 255, 255), odd="16 bits"),
    Odd("16-bit grey PNG with alpha", png(12, 10, 16, 4, deep([25700, 65535], 2)), flat(100, 100, 100), odd="16 bits"),
    Odd("2-bit grey PNG", png(12, 10, 2, 0, [b"\x55" * 3] * 10), flat(85, 85, 85)),
    Odd(
        "interlaced PNG chunk order",
        png(12, 10, 8, 2, [bytes((200, 30, 40)) * 12] * 10, [(b"tEXt", b"a\0b")]),
        flat(200, 30, 40),
    ),
    Odd("JPEG", picture(kind="JPEG", quality=100), flat(200, 30, 40), tolerance=3),
    Odd("grey JPEG", picture("L", colour=90, kind="JPEG"), flat(90, 90, 90), tolerance=3),
    Odd("progressive JPEG", picture(kind="JPEG", progressive=True, quality=100), flat(200, 30, 40), tolerance=3),
    Odd("CMYK JPEG", picture("CMYK", colour=(0, 255, 255, 0), kind="JPEG"), flat(255, 0, 0), odd="CMYK", tolerance=4),
    Odd("CMYK TIFF", picture("CMYK", colour=(255, 0, 0, 0), kind="TIFF"), flat(0, 255, 255), odd="CMYK"),
    Odd(
        "JPEG named .png",
        picture(kind="JPEG", quality=100),
        flat(200, 30, 40),
        suffix=".png",
        odd="is JPEG",
        tolerance=3,
    ),
    Odd("PNG named .jpg", picture(), flat(200, 30, 40), suffix=".jpg", odd="named as JPEG, is PNG"),
    Odd("JPEG in capitals", picture(kind="JPEG", quality=100), flat(200, 30, 40), suffix=".JPG", tolerance=3),
    Odd("PNG without a suffix", picture(), flat(200, 30, 40), suffix="."),
    *(
        Odd(
            f"EXIF orientation {number}",
            saved(half_red(), "PNG", exif=exif(number)),
            upright,
            odd="upright" if number > 1 else "",
        )
        for number, upright in {
            1: HALF_RED,
            2: HALF_RED[:, ::-1],
            3: HALF_RED[::-1, ::-1],
            4: HALF_RED[::-1],
            5: HALF_RED.transpose(1, 0, 2),
            6: np.rot90(HALF_RED, -1),
            7: HALF_RED[::-1, ::-1].transpose(1, 0, 2),
            8: np.rot90(HALF_RED),
        }.items()
    ),
    Odd("EXIF orientation that there is not", saved(half_red(), "PNG", exif=exif(9)), HALF_RED),
    Odd(
        "JPEG with EXIF",
        saved(half_red(), "JPEG", exif=exif(3), quality=100, subsampling=0),
        HALF_RED[::-1, ::-1],
        odd="upright",
        tolerance=4,
    ),
    Odd("GIF", picture(kind="GIF"), flat(200, 30, 40)),
    Odd("moving GIF", animation("GIF"), flat(250, 0, 0), odd="first of 3 frames"),
    Odd("GIF named .jpg", picture(kind="GIF"), flat(200, 30, 40), suffix=".jpg", odd="is GIF"),
    Odd("WebP", picture(kind="WEBP", lossless=True), flat(200, 30, 40)),
    Odd("moving WebP", animation("WEBP"), flat(250, 0, 0), odd="first of 3 frames"),
    Odd("WebP with alpha", clear("WEBP"), OVER_WHITE, odd="put over white"),
    Odd("moving PNG", animation("PNG"), flat(250, 0, 0), odd="first of"),
    Odd("BMP", picture(kind="BMP"), flat(200, 30, 40)),
    Odd("TIFF", picture(kind="TIFF"), flat(200, 30, 40)),
    Odd(
        "16-bit TIFF",
        saved(PIL.Image.fromarray(np.full((10, 12), 25700, "uint16")), "TIFF"),
        flat(100, 100, 100),
        odd="16 bits",
    ),
    Odd("float TIFF", saved(PIL.Image.fromarray(np.full((10, 12), 0.5, "float32")), "TIFF"), message="no known scale"),
    Odd(
        "32-bit TIFF", saved(PIL.Image.fromarray(np.full((10, 12), 1 << 20, "int32")), "TIFF"), message="no known scale"
    ),
    Odd("one pixel", picture(size=(1, 1)), flat(200, 30, 40, size=(1, 1)), odd="only 1 x 1"),
    Odd("one row", picture(size=(400, 1)), flat(200, 30, 40, size=(400, 1)), odd="only 400 x 1"),
    Odd("PPM", picture(kind="PPM"), flat(200, 30, 40)),
    Odd("ICO", picture(size=(16, 16), kind="ICO"), flat(200, 30, 40, size=(16, 16))),
    Odd("bytes after the end", picture() + b"more", flat(200, 30, 40)),
    Odd("decompression bomb", png(60_000, 60_000, 1, 0, [b""]), message="decompression bomb"),
    Odd("large on purpose", png(10_000, 9_000, 1, 0, [b""]), message="more than 89478485"),
    Odd("empty", b"", message="empty image file"),
    Odd("text", b"no picture", message="not a readable image"),
    Odd("HTML page saved as .jpg", b"<!DOCTYPE html><html></html>", message="not a readable image", suffix=".jpg"),
    Odd("cut PNG", picture(size=(200, 200))[:60], message="not a readable image"),
    Odd("cut JPEG", WHOLE_JPEG[:-1500], message="not a readable image"),
    Odd("header alone", WHOLE_JPEG[:20], message="not a readable image"),
    Odd("PNG with a wrong checksum", picture()[:20] + b"\xff" + picture()[21:], message="not a readable image"),
    Odd("a WAV as a picture", b"RIFF\0\0\0\0WAVEfmt ", message="not a readable image"),
]


def clip(samples, rate=RATE, kind="WAV", subtype=None):
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=kind, subtype=subtype)
    return file.getvalue()


WAVE = np.sin(np.arange(2000) / 9) * 0.5
STEREO = np.stack([WAVE, np.zeros(2000)], axis=1)


def rated(rate):
    """A tone of 200 Hz, a quarter of a second."""
    return np.sin(np.arange(rate // 4) * 2 * np.pi * 200 / rate) * 0.5


def with_declared_length(content, size):
    return content[:40] + struct.pack("<I", size) + content[44:]


CLIPS = [
    Odd("8-bit WAV", clip(WAVE, subtype="PCM_U8"), WAVE, tolerance=0.01, suffix=".wav"),
    Odd("16-bit WAV", clip(WAVE, subtype="PCM_16"), WAVE, tolerance=1e-4),
    Odd("24-bit WAV", clip(WAVE, subtype="PCM_24"), WAVE, tolerance=1e-6),
    Odd("32-bit WAV", clip(WAVE, subtype="PCM_32"), WAVE, tolerance=1e-6),
    Odd("float WAV", clip(WAVE, subtype="FLOAT"), WAVE, tolerance=1e-6),
    Odd("double WAV", clip(WAVE, subtype="DOUBLE"), WAVE, tolerance=1e-6),
    Odd("EXTENSIBLE WAV", clip(WAVE, kind="WAVEX", subtype="PCM_24"), WAVE, tolerance=1e-6, suffix=".wav"),
    Odd("u-law WAV", clip(WAVE, subtype="ULAW"), WAVE, tolerance=0.02),
    Odd("ADPCM WAV", clip(WAVE, subtype="IMA_ADPCM"), None, tolerance=0.1),
    Odd("FLAC", clip(WAVE, kind="FLAC"), WAVE, tolerance=1e-4),
    Odd("24-bit FLAC", clip(WAVE, kind="FLAC", subtype="PCM_24"), WAVE, tolerance=1e-6),
    Odd("OGG", clip(WAVE, kind="OGG"), WAVE, tolerance=0.1),
    Odd("MP3", clip(np.tile(rated(16000), 2), 16000, "MP3"), None, odd="16000 Hz"),
    Odd("AIFF", clip(WAVE, kind="AIFF"), WAVE, tolerance=1e-4),
    Odd("FLAC named .wav", clip(WAVE, kind="FLAC"), WAVE, tolerance=1e-4, suffix=".wav", odd="named as WAV, is FLAC"),
    Odd("stereo", clip(STEREO), WAVE / 2, tolerance=1e-3, odd="2 channels"),
    Odd("six channels", clip(np.stack([WAVE] * 6, axis=1)), WAVE, tolerance=1e-3, odd="6 channels"),
    Odd(
        "channels that cancel out",
        clip(np.stack([WAVE, -WAVE], axis=1)),
        np.zeros(2000),
        tolerance=1e-3,
        odd="cancel out",
    ),
    *(
        Odd(f"{rate} Hz", clip(rated(rate), rate), rated(RATE), tolerance=0.01, odd=f"{rate} Hz, resampled")
        for rate in (11025, 16000, 22050, 44100, 48000, 96000)
    ),
    Odd(
        "4000 Hz stereo", clip(np.stack([rated(4000)] * 2, axis=1), 4000), rated(RATE), tolerance=0.03, odd="2 channels"
    ),
    Odd("silence", clip(np.zeros(2000)), np.zeros(2000), odd="silent"),
    Odd("one sample", clip(np.array([0.5])), np.array([0.5]), tolerance=1e-4),
    Odd("one sample of a high rate", clip(np.array([0.5]), 48000), np.array([0.5]), tolerance=0.5, odd="48000 Hz"),
    Odd("clipped", clip(np.sign(WAVE)), np.sign(WAVE), tolerance=1e-3, odd="at full scale"),
    Odd("above full scale", clip(WAVE * 4, subtype="FLOAT"), WAVE * 4, tolerance=1e-5, odd="at full scale"),
    Odd("very long", clip(np.zeros(RATE * 600, "int16")), np.zeros(8800), odd="600.0 s, longer than 1.0 s"),
    Odd("longer than it says", with_declared_length(clip(WAVE, subtype="PCM_16"), 2000), WAVE[:1000], tolerance=1e-4),
    Odd("shorter than it says", clip(WAVE, subtype="PCM_16")[:-2000], WAVE[:1000], tolerance=1e-4, odd="cut off"),
    Odd("no samples", clip(np.zeros(0)), message="at least one sample"),
    Odd("no sound", clip(np.zeros(0), kind="FLAC"), message="audio"),
    Odd("NaN", clip(np.array([0.1, np.nan]), subtype="FLOAT"), message="must be finite"),
    Odd("infinite", clip(np.array([0.1, np.inf]), subtype="FLOAT"), message="must be finite"),
    Odd("empty", b"", message="empty audio file"),
    Odd("text", b"no sound", message="not a readable audio"),
    Odd("header alone", clip(WAVE)[:20], message="not a readable audio"),
    Odd("a picture as a clip", picture(), message="not a readable audio"),
    Odd("raw samples", np.zeros(99, "int16").tobytes(), message="not a readable audio"),
]

TEXTS = [
    "",
    " ",
    "  two  spaces  ",
    "line\nline\r\nline\rline",
    "tab\tand\x0bvertical\x0cfeed",
    "NUL\0inside",
    "\x01\x02\x7f control",
    "👩‍👩‍👧‍👦 family, 🏳️‍🌈 flag, 👍🏽 skin",
    "שלום עולם, مرحبا بالعالم",
    "\u202eright to left override\u202c",
    "e\u0301 and \u00e9",
    "Z̸̢̛͈a̷l̵g̶o̷",
    "ﬁ ligature, Ⅷ, ½, ㎏",
    "zero\u200bwidth\u200djoiner\ufeffand sign",
    "\u2028line\u2029paragraph\u0085next",
    "▁ and \ue000 and \ue000s and \ue000e",
    "\U0010ffff last, \ufffe, \uffff",
    "日本語 中文 한국어 ไทย हिन्दी",
    "𝒜𝓁𝑔𝑒𝒷𝓇𝒶 𐍈 𒀀",
    "<s> </s> <unk> <pad> [MASK]",
    "\\n \\0 %s {x} ${y} '\"`",
    "x" * 100_000,
]
