"""Picture files of any kind to RGB pixels."""

import pathlib
import warnings

import numpy as np
import PIL.Image
import PIL.ImageOps
import tensorflow as tf

MAX_PIXELS = 89_478_485  # where Pillow begins to suspect a decompression bomb
ORIENTATION = 0x0112  # of EXIF

# What is wrong with a file is told by `decode_image`, in one line and with the file's name.
warnings.filterwarnings("ignore", module=r"PIL\.")


def decode_image(file, path=""):
    """A binary file of an encoded picture -> RGB uint8 `(h, w, 3)`, and what is odd about it, as a list of str.

    Upright by its EXIF orientation; the first frame of an animation; 16 bits scaled to 8; transparency over white.

    Raises:
        Exception: of many types, Pillow's own, where the content is no picture or more than MAX_PIXELS.
    """
    try:
        picture = PIL.Image.open(file)
    except PIL.UnidentifiedImageError:  # whose message shows a Python object
        raise ValueError("of no format that is known here") from None
    with picture:
        if picture.width * picture.height > MAX_PIXELS:
            raise ValueError(f"{picture.width} x {picture.height} pixels, more than {MAX_PIXELS}: a decompression bomb")
        odd = _oddities(picture, path)
        if picture.format == "PNG" and _bits_of_png(file) == 16:
            return to_rgb(_read_deep_png(file, picture)), ["16 bits a channel, scaled to 8", *odd]
        return to_rgb(picture), odd


def _bits_of_png(file):
    file.seek(24)
    return file.read(1)[0]


def _read_deep_png(file, picture):
    """The PIL image of a PNG of 16 bits a channel, of which Pillow would drop the lower 8."""
    file.seek(0)
    pixels = _eight_bits(tf.io.decode_png(file.read(), dtype=tf.uint16).numpy())
    shallow = PIL.Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels)
    if "exif" in picture.info:
        shallow.info["exif"] = picture.info["exif"]
    return shallow


def to_rgb(picture):
    """A PIL image of any mode, upright -> RGB uint8 `(h, w, 3)`: 16 bits scaled to 8, transparency over white.

    Raises:
        ValueError: if its numbers have no known scale.
    """
    picture = PIL.ImageOps.exif_transpose(picture)
    if picture.mode.startswith(("I", "F")):  # Pillow itself would clip at 255
        pixels = np.asarray(picture)
        if picture.mode == "F" or pixels.min(initial=0) < 0 or pixels.max(initial=0) > 65535:
            raise ValueError(f"pixels of mode {picture.mode!r} have no known scale; save them with 8 or 16 bits")
        picture = PIL.Image.fromarray(_eight_bits(pixels))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = PIL.Image.alpha_composite(PIL.Image.new("RGBA", picture.size, "white"), picture)
    return np.asarray(picture.convert("RGB"))


def _eight_bits(pixels):
    return np.round(pixels / 257).astype("uint8")


def _oddities(picture, path):
    odd = []
    named = PIL.Image.registered_extensions().get(pathlib.PurePath(path).suffix.lower())
    if named and named != picture.format:
        odd.append(f"named as {named}, is {picture.format}")
    if picture.mode == "CMYK":
        odd.append("CMYK colours, converted")
    if picture.mode.startswith("I") and picture.format != "PNG":
        odd.append("16 bits a channel, scaled to 8")
    if getattr(picture, "n_frames", 1) > 1:
        odd.append(f"the first of {picture.n_frames} frames")
    if picture.getexif().get(ORIENTATION) in range(2, 9):
        odd.append("turned upright by its EXIF orientation")
    if picture.has_transparency_data and picture.convert("RGBA").getchannel("A").getextrema()[0] < 255:
        odd.append("transparent, put over white")
    if min(picture.size) < 8:
        odd.append(f"only {picture.width} x {picture.height} pixels")
    return odd
