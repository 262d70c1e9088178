"""What both sides of a comparison share: the options, the work that is counted, and the JSON line.

Imports nothing but Python's own library, since the rival has an environment of its own.
"""

import argparse
import json
import statistics
import time

OPTIONS = {"dim": 256, "experts": 16, "k": 4, "batch": 16, "inputs": 64, "targets": 64, "vocab": 8192, "steps": 8}
MATRIX = 2048


def parser(description):
    """A parser of the options of one training step."""
    result = argparse.ArgumentParser(description=description)
    for name, value in OPTIONS.items():
        result.add_argument(f"--{name}", type=int, default=value)
    return result


def gflop_per_step(o):
    """GFLOP of one training step: multiply-adds counted twice, and the forward pass three times.

    Counted are depthwise and pointwise convolutions, projections, attention scores, experts, and logits.
    """
    d, n, m, k = o.dim, o.inputs, o.targets, min(o.k, o.experts)
    conv = 4 * d * d + (3 + 3 + 15 + 15) * d
    experts = k * 2 * d * d
    attention_block = 2 * d * d + (3 + 3) * d  # its two ConvSteps
    attention_block += 4 * d * d + 2 * m * d  # looks at itself
    attention_block += 2 * d * d + 2 * n * d  # looks at the source
    source = 2 * d * d  # keys and values of the source
    encoder = n * (6 * conv + experts)
    mixer = m * (attention_block + 2 * conv) + n * source
    decoder = m * (4 * (conv + attention_block) + experts) + 4 * n * source
    return 3 * 2 * o.batch * (encoder + mixer + decoder + m * d * o.vocab) / 1e9


def matrix_gflops(multiply):
    """The machine's own rate: GFLOP a second of a product of two square matrices of MATRIX rows, the best of five."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        multiply()
        times.append(time.perf_counter() - start)
    return 2 * MATRIX**3 / min(times) / 1e9


def print_line(peer, dtype, parameters, first, seconds, matrix_rate, options):
    """Prints one measurement: `first` seconds to the end of the first step, `seconds` those of later steps."""
    step, work = statistics.median(seconds), gflop_per_step(options)
    line = {
        "peer": peer,
        "dtype": dtype,
        "parameters": parameters,
        "first_step_s": round(first, 1),
        "step_ms": round(step * 1e3, 1),
        "tokens_per_s": round(options.batch * (options.inputs + options.targets) / step),
        "gflop_per_step": round(work, 1),
        "matrix_gflops": round(matrix_rate, 1),
        "utilisation": round(work / step / matrix_rate, 3),
    }
    print(json.dumps(line), flush=True)
