"""Picture files to pixels by TensorFlow operations, as Pillow reads them in `multimodel.tasks.image_files`.

PNG of any depth, JPEG, the first frame of GIF, BMP of 24 and 32 bits; upright by EXIF, transparency over white. Pillow
also reads WebP, TIFF and more, and BMP with a palette; and it knows which pixels of a GIF are transparent.
"""

import tensorflow as tf

from multimodel.export.orientation import jpeg_orientation, png_chunk, png_orientation, upright
from multimodel.tasks.features import scaled
from multimodel.tasks.image_files import MAX_PIXELS

PNG, JPEG, GIF, BMP = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM"


def read_picture(feature, content):
    """One file -> uint8 `(height, width, 3)` and the reason why there is none, empty if there is.

    Raises:
        tf.errors.OpError: when the graph runs, if the file is damaged.
    """
    size = tf.stack([feature.height, feature.width])

    def decoded(decode, pixels):
        """Pictures that are too large are refused by what their header says."""

        def scale():
            picture = decode(content)
            same = tf.reduce_all(tf.shape(picture)[:2] == size)
            return tf.ensure_shape(tf.cond(same, lambda: picture, lambda: scaled(picture, size)), feature.shape), ""

        def refuse(reason):
            return lambda: (tf.zeros(feature.shape, tf.uint8), reason)

        too_large = f"a picture of more than {MAX_PIXELS} pixels"
        return tf.cond(pixels(content) > MAX_PIXELS, refuse(too_large), scale)

    kinds = ((PNG, _decode_png, _png_pixels), (JPEG, _decode_jpeg, _jpeg_pixels), (GIF, _decode_gif, _gif_pixels))
    cases: list = [
        (_starts_with(content, magic), lambda decode=decode, pixels=pixels: decoded(decode, pixels))
        for magic, decode, pixels in kinds
    ]
    cases.append((_is_plain_bmp(content), lambda: decoded(_decode_bmp, _bmp_pixels)))
    unknown = tf.zeros(feature.shape, tf.uint8), "not a PNG, JPEG, GIF, or BMP of 24 or 32 bits"
    return tf.case(cases, default=lambda: unknown)


def _starts_with(content, magic):
    return tf.strings.substr(content, 0, len(magic)) == magic


def _number(content, start, size, little=True):
    """The unsigned number of some bytes, int64; 0 of bytes that are not there."""
    part = tf.io.decode_raw(tf.strings.substr(content, tf.minimum(start, tf.strings.length(content)), size), tf.uint8)
    part = tf.cast(part if little else part[::-1], tf.int64)
    return tf.reduce_sum(tf.bitwise.left_shift(part, 8 * tf.range(tf.size(part, tf.int64))))


def _png_pixels(content):
    return _number(content, 16, 4, little=False) * _number(content, 20, 4, little=False)


def _jpeg_pixels(content):
    height, width, _ = tf.unstack(tf.cast(tf.image.extract_jpeg_shape(content), tf.int64))
    return height * width


def _gif_pixels(content):
    return _number(content, 6, 2) * _number(content, 8, 2)


def _bmp_pixels(content):
    height = tf.cast(tf.bitcast(tf.cast(_number(content, 22, 4), tf.uint32), tf.int32), tf.int64)  # below 0: top down
    return _number(content, 18, 4) * tf.abs(height)


def _is_plain_bmp(content):
    """TensorFlow takes the palette's numbers of another BMP for its colours."""
    plain = (_number(content, 28, 2) >= 24) & (_number(content, 30, 4) == 0)
    return _starts_with(content, BMP) & plain


def _decode_png(content):
    def decode(channels):
        def deep():
            picture = tf.cast(tf.io.decode_png(content, channels, tf.uint16), tf.float32)
            return tf.cast(tf.round(picture / 257), tf.uint8)

        return tf.cond(_number(content, 24, 1) == 16, deep, lambda: tf.io.decode_png(content, channels))

    # Of pictures without transparency of less than 8 bits, TensorFlow would give a wrong one.
    transparent = (_number(content, 25, 1) >= 4) | (png_chunk(content, b"tRNS") >= 0)
    picture = tf.cond(transparent, lambda: _over_white(decode(4)), lambda: decode(3))
    return upright(picture, png_orientation(content))


def _decode_jpeg(content):
    picture = tf.io.decode_jpeg(content, 3, fancy_upscaling=True, dct_method="INTEGER_ACCURATE")
    return upright(picture, jpeg_orientation(content))


def _decode_gif(content):
    return tf.io.decode_image(content, channels=3, expand_animations=False)


def _decode_bmp(content):
    return tf.io.decode_bmp(content)[..., :3]  # Pillow takes no notice of the fourth byte either


def _over_white(picture):
    """RGBA `(h, w, 4)` over white -> RGB, in Pillow's arithmetic of whole numbers."""
    colour, alpha = tf.cast(picture[..., :3], tf.int32), tf.cast(picture[..., 3:], tf.int32)
    blended = colour * alpha + 255 * (255 - alpha) + 128
    return tf.cast(tf.bitwise.right_shift(blended + tf.bitwise.right_shift(blended, 8), 8), tf.uint8)
