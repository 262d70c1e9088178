"""WAV files to samples by TensorFlow operations, as libsndfile and soxr give them in `multimodel.tasks.audio_files`.

PCM of 8, 16, 24 and 32 bits, float of 32 and 64, EXTENSIBLE headers, any number of channels, rates from 1,000 to
768,000 Hz. In Python other kinds of files are read as well: FLAC, OGG, MP3, compressed WAV.
"""

import tensorflow as tf

from multimodel.tasks.audio_files import MARGIN

PCM, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
RATES = 1_000, 768_000
PASSBAND = 0.913  # of half the lower rate, up to which soxr leaves a spectrum as it is


def read_clip(feature, content):
    """One file -> (int16 `(max samples,)`, its length before cutting), and why there is none, empty if there is."""
    head, data = _chunks(content)
    kind, channels, rate, bits = (_number(head, *part) for part in ((0, 2), (2, 2), (4, 4), (14, 2)))
    kind = tf.where(kind == EXTENSIBLE, _number(head, 24, 2), kind)
    known = ((kind == PCM) & ((bits == 8) | (bits == 16) | (bits == 24) | (bits == 32))) | (
        (kind == FLOAT) & ((bits == 32) | (bits == 64))
    )
    known &= (channels > 0) & (rate >= RATES[0]) & (rate <= RATES[1])

    def decode():
        frame = channels * bits // 8
        seconds = feature.max_seconds + MARGIN
        most = tf.cast(tf.math.ceil(seconds * tf.cast(rate, tf.float64)), tf.int32)
        frames = tf.minimum(tf.strings.length(data) // frame, most)
        samples = _samples(tf.strings.substr(data, 0, frames * frame), kind, bits)
        samples = tf.reduce_mean(tf.reshape(samples, (frames, channels)), axis=1)
        finite = tf.reduce_all(tf.math.is_finite(samples))
        samples = tf.cond(
            (rate == feature.sample_rate) | (frames == 0) | ~finite,
            lambda: samples,
            lambda: resample(samples, rate, feature.sample_rate),
        )
        reason = tf.where(
            frames == 0, "audio has no samples", tf.where(finite, "", "audio has NaN or infinite samples")
        )
        return _encoded(feature, tf.where(finite, samples, 0)), reason

    refused = (tf.zeros(feature.shape, tf.int16), 0), "not a WAV file of PCM or float samples, of 1 to 768 kHz"
    return tf.cond(known, decode, lambda: refused)


def _encoded(feature, samples):
    """As `Audio.encode` does it: 16 bits, cut or filled with silence, and the length before that."""
    length, longest = tf.size(samples), feature.shape[0]
    samples = tf.cast(tf.clip_by_value(tf.round(samples[:longest] * 32768), -32768, 32767), tf.int16)
    return tf.ensure_shape(tf.pad(samples, [[0, longest - tf.size(samples)]]), (longest,)), length


def _chunks(content):
    """The contents of a RIFF file's `fmt ` and `data`, empty where there are none."""
    size = tf.strings.length(content)

    def walking(place, head, data):
        return (place + 8 <= size) & (data == "")

    def walk(place, head, data):
        name = tf.strings.substr(content, place, 4)
        length = _number(tf.strings.substr(content, place + 4, 4), 0, 4)
        length = tf.where((length < 0) | (length > size - place - 8), size - place - 8, length)  # cut off, or streamed
        part = tf.strings.substr(content, place + 8, length)
        head, data = tf.where(name == "fmt ", part, head), tf.where(name == "data", part, data)
        return place + 8 + length + length % 2, head, data

    is_wave = (tf.strings.substr(content, 0, 4) == "RIFF") & (
        tf.strings.substr(content, tf.minimum(8, size), 4) == "WAVE"
    )
    start = tf.where(is_wave, 12, size)
    _, head, data = tf.while_loop(walking, walk, (start, tf.constant(""), tf.constant("")))
    return head, data


def _number(content, start, size):
    """The little-endian number of some bytes, int32; 0 of bytes that are not there."""
    part = tf.strings.substr(content, tf.minimum(start, tf.strings.length(content)), size)
    part = tf.cast(tf.io.decode_raw(part, tf.uint8), tf.int32)
    return tf.reduce_sum(tf.bitwise.left_shift(part, 8 * tf.range(tf.size(part))))


def _samples(data, kind, bits):
    """Bytes -> float32 from -1 to 1."""

    def pcm(bits):
        part = tf.cast(tf.reshape(tf.io.decode_raw(data, tf.uint8), (-1, bits // 8)), tf.int32)
        if bits == 8:
            return tf.cast(part[:, 0] - 128, tf.float32) / 128
        shifts = 32 - bits + 8 * tf.range(bits // 8)  # the sign comes to stand at the top
        return tf.cast(tf.reduce_sum(tf.bitwise.left_shift(part, shifts), axis=1), tf.float32) / 2.0**31

    cases: list = [(tf.equal(kind, PCM) & tf.equal(bits, b), lambda b=b: pcm(b)) for b in (8, 16, 24, 32)]
    cases.append((tf.equal(bits, 32), lambda: tf.io.decode_raw(data, tf.float32)))
    return tf.case(cases, default=lambda: tf.cast(tf.io.decode_raw(data, tf.float64), tf.float32))


def resample(samples, rate, new_rate):
    """Samples `(s,)` at one rate -> `(round(s new_rate / rate),)` at another, by their spectrum.

    The spectrum is cut off, with a smooth edge, at half the lower rate, and set to the new length. Silence behind the
    clip keeps its end from coming out before its beginning.
    """
    divisor = _greatest_common_divisor(rate, new_rate)
    step, new_step = rate // divisor, new_rate // divisor
    size = tf.size(samples)
    blocks = (size + rate // 20) // step + 1
    spectrum = tf.signal.rfft(samples, fft_length=[blocks * step])
    kept = blocks * tf.minimum(step, new_step) // 2 + 1
    edge = tf.linspace(0.0, 1.0, kept)
    edge = tf.clip_by_value((edge - PASSBAND) / (1 - PASSBAND), 0.0, 1.0)
    spectrum = spectrum[:kept] * tf.cast(0.5 + 0.5 * tf.cos(3.14159265 * edge), tf.complex64)
    spectrum = tf.pad(spectrum, [[0, blocks * new_step // 2 + 1 - kept]])
    resampled = tf.signal.irfft(spectrum, fft_length=[blocks * new_step])
    ratio = tf.cast(new_step, tf.float64) / tf.cast(step, tf.float64)
    length = tf.cast(tf.floor(tf.cast(size, tf.float64) * ratio + 0.5), tf.int32)
    resampled = resampled[:length] * tf.cast(ratio, tf.float32)
    return tf.cond(length == 0, lambda: samples[:1], lambda: resampled)


def _greatest_common_divisor(a, b):
    return tf.while_loop(lambda a, b: b > 0, lambda a, b: (b, a % b), (a, tf.constant(b)))[0]
