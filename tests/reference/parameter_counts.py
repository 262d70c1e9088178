"""How many parameters each part has, by formula, written from arXiv 1706.05137 and 1701.06538."""

import itertools


def norm(dim):
    return 2 * dim


def separable(channels, filters, taps):
    """A ConvStep: depthwise taps, a pointwise matrix, a normalisation; no biases."""
    return taps * channels + channels * filters + norm(filters)


def conv_block(dim):
    return sum(separable(dim, dim, taps) for taps in (3, 3, 15, 15))


def attention_block(dim):
    """Two ConvSteps, and query, key, value and output matrices of two attentions."""
    return 2 * separable(dim, dim, 3) + 2 * 4 * dim**2


def moe_block(dim, num_experts):
    """Gate and noise matrices, two matrices of each expert, a normalisation."""
    return 2 * dim * num_experts + num_experts * 2 * dim**2 + norm(dim)


def body(dim, num_experts, encoder=6, mixer=2, decoder=4):
    blocks = (encoder + mixer + decoder) * conv_block(dim)
    return blocks + (1 + decoder) * attention_block(dim) + 2 * moe_block(dim, num_experts)


def conv_res(channels, filters, taps):
    return separable(channels, filters, taps) + separable(filters, filters, taps) + separable(channels, filters, 1)


def entry_flow(dim):
    steps = separable(3, 32, 9) + separable(32, 64, 9)
    return steps + conv_res(64, 128, 9) + conv_res(128, 256, 9) + conv_res(256, dim, 9)


def exit_flow(dim, num_classes):
    steps = 3 * separable(dim, dim, 9) + separable(dim, 1536, 9) + separable(1536, 2048, 9)
    return steps + 2048 * num_classes + num_classes


def audio_net(dim, taps):
    """Eight ConvRes blocks to 2, 4, ..., 256 channels, and a projection to the body's width."""
    widths = [1, *(2**i for i in range(1, 9))]
    blocks = sum(conv_res(channels, filters, taps) for channels, filters in itertools.pairwise(widths))
    return blocks + 256 * dim


def paper(dim=1024, num_experts=240, vocabulary_size=8192, num_classes=1000):
    """`{part: parameters}` of the model of the eight tasks."""
    commands = {f"{space}_command": dim for space in ("english", "french", "german", "tree")}
    return commands | {
        "body": body(dim, num_experts),
        "text_input": vocabulary_size * dim,
        "text_output": 2 * vocabulary_size * dim,
        "image_input": entry_flow(dim),
        "audio_input": audio_net(dim, 9),
        "imagenet_output": exit_flow(dim, num_classes),
    }
