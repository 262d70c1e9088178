"""The blocks in NumPy, written from arXiv 1706.05137 and 1701.06538 with loops rather than tricks, as an oracle."""

import numpy as np


def layer_norm(x, scale, bias, epsilon=1e-6):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * scale + bias


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def timing(length, dim):
    signal = np.zeros((length, dim))
    for t in range(length):
        for j in range(dim // 2):
            signal[t, 2 * j] = np.sin(t * 1e4 ** (-2 * j / dim))
            signal[t, 2 * j + 1] = np.cos(t * 1e4 ** (-2 * j / dim))
    return signal


def conv_step(x, weights, dilation, causal, mask):
    """`x (n, d)`; `weights` is depthwise `(k, d)`, pointwise, scale and bias."""
    depthwise, pointwise, scale, bias = weights
    x = np.maximum(x, 0) * mask[:, None]
    size = len(depthwise)
    y = np.zeros_like(x)
    for t in range(len(x)):
        for tap in range(size):
            source = t + (tap - (size - 1 if causal else size // 2)) * dilation
            if 0 <= source < len(x):
                y[t] += depthwise[tap] * x[source]
    return layer_norm(y @ pointwise, scale, bias)


def conv_block(x, steps, causal, mask):
    first = conv_step(x, steps[0], 1, causal, mask)
    second = x + conv_step(first, steps[1], 1, causal, mask)
    third = conv_step(second, steps[2], 1, causal, mask)
    return x + conv_step(third, steps[3], 8, causal, mask)


def multi_head_attention(target, source, projections, heads, seen):
    """`seen (m, n)`: which source positions each target position looks at."""
    query, key, value, output = projections
    q, k, v = target @ query, source @ key, source @ value
    size = q.shape[-1] // heads
    parts = []
    for head in range(heads):
        cut = slice(head * size, (head + 1) * size)
        scores = q[:, cut] @ k[:, cut].T / np.sqrt(size)
        parts.append(softmax(np.where(seen, scores, -1e9)) @ v[:, cut])
    return np.concatenate(parts, -1) @ output


def attention_block(x, source, steps, self_projections, projections, heads, mask, source_mask):
    query = x + timing(*x.shape)
    for step in steps:
        query = conv_step(query, step, 1, True, mask)
    earlier = np.tril(np.ones((len(x), len(x)), bool)) & mask
    query = multi_head_attention(query, query, self_projections, heads, earlier)
    seen = np.broadcast_to(source_mask, (len(x), len(source)))
    return x + multi_head_attention(query, source, projections, heads, seen)


def top_k_gates(logits, k):
    """The softmax over the k largest logits of each row, 0 elsewhere."""
    gates = np.zeros_like(logits)
    for row, values in enumerate(logits):
        kept = np.argsort(-values, kind="stable")[:k]
        gates[row, kept] = softmax(values[kept])
    return gates


def moe_block(x, gate, expand, reduce, scale, bias, k):
    gates = top_k_gates(x @ gate, k)
    y = np.zeros_like(x)
    for row in range(len(x)):
        for expert in np.flatnonzero(gates[row]):
            y[row] += gates[row, expert] * (np.maximum(x[row] @ expand[expert], 0) @ reduce[expert])
    return layer_norm(x + y, scale, bias)


def load(clean, noisy, sigma, k):
    """Expected load of each expert (1701.06538, appendix A), from clean and noisy logits `(s, e)`."""
    from math import erf

    chances = np.zeros_like(clean)
    for row in range(len(clean)):
        for expert in range(clean.shape[1]):
            others = np.delete(noisy[row], expert)
            threshold = np.sort(others)[-k]
            z = (clean[row, expert] - threshold) / sigma[row, expert]
            chances[row, expert] = 0.5 * (1 + erf(z / np.sqrt(2)))
    return chances.sum(0)


def mel_power(samples, frame, hop, fft_length, mels):
    """Frames `(f, bins)` of one clip."""
    count = -(-len(samples) // hop)
    padded = np.concatenate([np.asarray(samples, np.float64), np.zeros(count * hop + fft_length)])
    window = np.zeros(fft_length)
    left = (fft_length - frame) // 2
    window[left : left + frame] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(frame) / frame)
    spectra = [np.fft.rfft(padded[i * hop : i * hop + fft_length] * window) for i in range(count)]
    return np.abs(np.array(spectra)) ** 2 @ mels


def log_mel(*arguments):
    """Logarithms of `mel_power`, the clip's mean of each bin taken off."""
    rows = np.log(mel_power(*arguments) + 1e-6)
    return rows - rows.mean(0)


def routing_losses(x, gate, noise_kernel, noise, k):
    """CV^2 of importance, CV^2 of load, Switch loss and z-loss of tokens `x (s, d)` under the drawn `noise (s, e)`."""
    clean = x @ gate
    sigma = np.log1p(np.exp(x @ noise_kernel)) + 1e-2
    noisy = clean + noise * sigma
    gates = top_k_gates(noisy, k)
    shares = (gates > 0).mean(0) / k
    log_sum = np.log(np.exp(clean).sum(-1))
    switch = clean.shape[1] * (shares * softmax(clean).mean(0)).sum()
    return cv_squared(gates.sum(0)), cv_squared(load(clean, noisy, sigma, k)), switch, (log_sum**2).mean()


def cv_squared(x):
    return x.var() / x.mean() ** 2
