"""The examples of a run in TensorBoard: texts, pictures, sound, spectrograms and alignments."""

import io
import json

import tensorflow as tf
from matplotlib.figure import Figure
from PIL import Image

WAV = b"\x10\x0b"  # AudioPluginData(encoding=WAV), as TensorBoard's audio plugin writes it
KINDS = {
    "text": (b"", "DATA_CLASS_TENSOR"),
    "images": (b"", "DATA_CLASS_BLOB_SEQUENCE"),
    "audio": (WAV, "DATA_CLASS_BLOB_SEQUENCE"),
}


def write_tensorboard_samples(folder, step):
    """Writes `samples/` of a run's folder as events into its `tensorboard/samples/`.

    A folder of their own: of one folder's files, TensorBoard follows the newest alone.
    TensorBoard shows them; to write them takes TensorFlow alone, since files of pictures and sound go in as they are.

    Args:
        folder: of a run, with `samples/` as `write_samples` leaves it.
        step: that the examples are of.

    Raises:
        OSError: if the events cannot be written.
    """
    samples, events = folder / "samples", folder / "tensorboard" / "samples"
    try:
        writer = tf.summary.create_file_writer(str(events))
        with writer.as_default(step=step):
            for file in sorted(samples.glob("*.jsonl")):
                for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
                    _write(f"{file.stem}_samples/{number}", json.loads(line), samples)
        writer.close()
    except tf.errors.OpError as error:
        raise OSError(f"no events in {events} ({type(error).__name__})") from error


def _write(tag, record, samples):
    """One example, under tags that begin with `tag`."""
    _summary(f"{tag}/text", "text", _markdown(record))
    for name in ("picture", "spectrogram"):
        if record[name]:
            _write_picture(f"{tag}/{name}", (samples / record[name]).read_bytes())
    if record["clip"]:
        _summary(f"{tag}/clip", "audio", [[(samples / record["clip"]).read_bytes(), b""]])
    if record["attention"]:
        _write_picture(f"{tag}/attention", _drawn(record["attention"]))


def _write_picture(tag, png):
    width, height = Image.open(io.BytesIO(png)).size
    _summary(tag, "images", [str(width).encode(), str(height).encode(), png])


def _summary(tag, plugin, value):
    """Writes bytes under a tag, for one of TensorBoard's plugins."""
    content, data_class = KINDS[plugin]
    metadata = tf.compat.v1.SummaryMetadata(data_class=data_class)
    metadata.plugin_data.plugin_name = plugin
    metadata.plugin_data.content = content
    tf.summary.write(tag, tf.constant(value), metadata=metadata)


def _markdown(record):
    """Input, target and output as blocks of code, in which nothing is markup."""
    names = ("input", "target", "output")
    blocks = [f"{name}\n\n" + "".join(f"    {line}\n" for line in record[name].splitlines() or [""]) for name in names]
    right = "right" if record["right"] else "wrong"
    return "\n".join(blocks) + f"\n{right}, log-probability {record['score']:.2f}"


def _drawn(attention):
    """An alignment as PNG: pieces of the output downwards, source positions to the right."""
    pieces, sources = attention["pieces"], attention["sources"]
    figure = Figure(figsize=(2 + 0.22 * len(sources), 1 + 0.22 * len(pieces)), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(attention["weights"], cmap="Blues", vmin=0, aspect="auto")
    axes.set_yticks(range(len(pieces)), pieces, parse_math=False)
    every = -(-len(sources) // 60)  # names of more would not be readable
    axes.set_xticks(range(0, len(sources), every), sources[::every], rotation=90, parse_math=False)
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=80)
    return png.getvalue()
