"""How a picture is to be turned, by its EXIF, of which TensorFlow's decoders take no notice; also in its operations."""

import tensorflow as tf

ORIENTATION = 0x0112


def jpeg_orientation(content):
    """1 to 8, of a JPEG file; 1 where it does not say."""
    data = _bytes(content)

    def walking(place, exif):
        marker = _number(data, place, 2)
        # Scans begin with 0xFFDA; the orientation stands before them.
        return (exif < 0) & (marker > 0xFF00) & (marker != 0xFFDA) & (marker != 0xFFD9)

    def walk(place, exif):
        found = (_number(data, place, 2) == 0xFFE1) & (_number(data, place + 4, 4) == int.from_bytes(b"Exif", "big"))
        return place + 2 + tf.maximum(_number(data, place + 2, 2), 2), tf.where(found, place + 10, exif)

    _, exif = tf.while_loop(walking, walk, (tf.constant(2), tf.constant(-1)))
    return _of_exif(data, exif)


def png_orientation(content):
    """1 to 8, of a PNG file; 1 where it does not say."""
    return _of_exif(_bytes(content), png_chunk(content, b"eXIf"))


def png_chunk(content, name):
    """Where the first chunk of that name begins in a PNG file, or -1."""
    data = _bytes(content)

    def walking(place, found):
        return (found < 0) & (place + 12 <= tf.size(data))

    def walk(place, found):
        named = _number(data, place + 4, 4) == int.from_bytes(name, "big")
        length = tf.clip_by_value(_number(data, place, 4), 0, tf.size(data))  # below 0: more than 31 bits
        return place + 12 + length, tf.where(named, place + 8, found)

    return tf.while_loop(walking, walk, (tf.constant(8), tf.constant(-1)))[1]


def upright(picture, orientation):
    """`picture (h, w, channels)` as it should be looked at."""
    turns = [
        lambda: picture,
        lambda: picture[:, ::-1],
        lambda: picture[::-1, ::-1],
        lambda: picture[::-1],
        lambda: tf.transpose(picture, (1, 0, 2)),
        lambda: tf.transpose(picture, (1, 0, 2))[:, ::-1],
        lambda: tf.transpose(picture, (1, 0, 2))[::-1, ::-1],
        lambda: tf.transpose(picture, (1, 0, 2))[::-1],
    ]
    return tf.switch_case(orientation - 1, turns)


def _bytes(content):
    return tf.cast(tf.io.decode_raw(content, tf.uint8), tf.int32)


def _number(data, start, size, little=False):
    """The number of `size` bytes from `start` on; 0 beyond the end."""
    places = start + tf.range(size)
    inside = (places >= 0) & (places < tf.size(data))
    part = tf.where(inside, tf.gather(data, tf.clip_by_value(places, 0, tf.size(data) - 1)), 0)
    shifts = 8 * (tf.range(size) if little else tf.range(size - 1, -1, -1))
    return tf.reduce_sum(tf.bitwise.left_shift(part, shifts))


def _of_exif(data, start):
    """The orientation in a TIFF structure that begins at `start`, below 0 for none."""

    def look():
        little = _number(data, start, 2) == int.from_bytes(b"II", "big")

        def number(place, size):
            return tf.where(little, _number(data, place, size, little=True), _number(data, place, size))

        directory = start + number(start + 4, 4)
        count = tf.minimum(number(directory, 2), 1000)

        def searching(entry, value):
            return (entry < count) & (value == 0)

        def search(entry, value):
            place = directory + 2 + 12 * entry
            return entry + 1, tf.where(number(place, 2) == ORIENTATION, number(place + 8, 2), value)

        _, value = tf.while_loop(searching, search, (tf.constant(0), tf.constant(0)))
        return tf.where((value >= 1) & (value <= 8), value, 1)

    return tf.cond(start >= 0, look, lambda: 1)
