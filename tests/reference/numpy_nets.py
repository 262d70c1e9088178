"""The convolutional modality nets in NumPy, written from arXiv 1706.05137, one example at a time, as an oracle."""

import numpy as np

from tests.reference.numpy_blocks import layer_norm, mel_power


def windows(x, size, stride, fill):
    """For each tap of a centred window, its place in the window and the values `(rows, columns, c)` under it."""
    h, w = x.shape[:2]
    rows, columns = -(-h // stride[0]), -(-w // stride[1])
    top, left = (size[0] - 1) // 2, (size[1] - 1) // 2
    padded = np.pad(x, ((top, top), (left, left), (0, 0)), constant_values=fill)
    for a in range(size[0]):
        for b in range(size[1]):
            down, across = a + np.arange(rows) * stride[0], b + np.arange(columns) * stride[1]
            yield (a, b), padded[down][:, across]


def conv_step_2d(x, weights, stride, mask):
    """`x (h, w, c)`, `mask (h, w)`; `weights` is depthwise `(kh, kw, c)`, pointwise `(c, f)`, scale and bias."""
    depthwise, pointwise, scale, bias = weights
    x = np.where(mask[..., None], np.maximum(np.asarray(x, np.float64), 0), 0)
    y = 0
    for tap, values in windows(x, depthwise.shape[:2], stride, 0):
        y = y + depthwise[tap] * values
    return layer_norm(y @ pointwise, scale, bias)


def max_pool(x, size, stride, mask):
    """The largest real value of each centred window, 0 where the centre is masked."""
    x = np.where(mask[..., None], np.asarray(x, np.float64), -np.inf)
    y = -np.inf
    for _, values in windows(x, size, stride, -np.inf):
        y = np.maximum(y, values)
    return np.where(mask[:: stride[0], :: stride[1], None], y, 0)


def conv_res(x, weights, size, stride, mask):
    """`weights` is two steps and the shortcut; `size` is the pool's. Returns the sum and the strided mask."""
    step1, step2, shortcut = weights
    first = conv_step_2d(x, step1, (1, 1), mask)
    second = conv_step_2d(first, step2, (1, 1), mask)
    y = max_pool(second, size, stride, mask) + conv_step_2d(x, shortcut, stride, mask)
    return y, mask[:: stride[0], :: stride[1]]


def entry_flow(image, weights):
    """`image (h, w, 3)` of bytes; `weights` has 2 steps and 3 blocks. Returns `(positions, d)`, row by row."""
    x = np.asarray(image, np.float64) / 255
    mask = np.ones(x.shape[:2], bool)
    x = conv_step_2d(x, weights["steps"][0], (2, 2), mask)
    mask = mask[::2, ::2]
    x = conv_step_2d(x, weights["steps"][1], (1, 1), mask)
    for block in weights["blocks"]:
        x, mask = conv_res(x, block, (3, 3), (2, 2), mask)
    return x.reshape(-1, x.shape[-1])


def exit_flow(vectors, weights, grid, mask):
    """`vectors (n, d)`, `grid` rows and columns, `mask (n,)`; `weights` has skip, 4 steps and classes."""
    h1, h2, h4, h5 = weights["steps"]
    kernel, bias = weights["classes"]
    size = h2[0].shape[:2]
    stride = (2, 1) if size[1] == 1 else (2, 2)
    x, mask = vectors.reshape(*grid, -1), mask.reshape(grid)
    skip = conv_step_2d(x, weights["skip"], stride, mask)
    x = conv_step_2d(x, h1, (1, 1), mask)
    x = conv_step_2d(x, h2, (1, 1), mask)
    x = skip + max_pool(x, size, stride, mask)
    mask = mask[:: stride[0], :: stride[1]]
    x = conv_step_2d(x, h4, (1, 1), mask)
    x = conv_step_2d(x, h5, (1, 1), mask)
    return np.maximum(x[mask], 0).mean(0) @ kernel + bias


def waveform_net(samples, weights, mask):
    """`samples (t,)` in -1..1, `mask (t,)`; `weights` has 8 blocks and a projection. Returns vectors and mask."""
    x = ((np.asarray(samples, np.float64) + 1) / 2)[:, None, None]
    mask = mask[:, None]
    for block in weights["blocks"]:
        x, mask = conv_res(x, block, (3, 1), (2, 1), mask)
    return x[:, 0] @ weights["projection"], mask[:, 0]


def spectrogram_net(samples, weights, frame, hop, fft_length, mels):
    """`samples (t,)`, all real; 8 blocks, only time strided. Returns `(times * bins, d)`, time outer."""
    x = np.log1p(mel_power(samples, frame, hop, fft_length, mels) / 1e-6)[..., None]
    mask = np.ones(x.shape[:2], bool)
    for block in weights["blocks"]:
        x, mask = conv_res(x, block, (3, 3), (2, 1), mask)
    return x.reshape(-1, x.shape[-1]) @ weights["projection"]
