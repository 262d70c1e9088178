"""The rival of `decode.py`: `generate` of a T5 in Hugging Face transformers on PyTorch, of random weights.

As many layers, channels, heads, classes and parameters as the model there; greedy, float32, with its cache. It is kept
from ending early, as the model there never does. Prints the same JSON lines. Needs torch and transformers.

    .venv-torch/bin/python benchmarks/torch_decode.py --parameters 1742000
"""

import argparse
import json
import statistics
import time

import torch
import transformers

LENGTHS, BATCHES = (32, 256), (1, 32)
DIM, LAYERS, HEADS, VOCABULARY, INPUTS = 128, 3, 8, 1000, 64


def model_of(parameters):
    """A T5 whose hidden layers are as wide as makes so many parameters."""

    def build(hidden):
        config = transformers.T5Config(
            vocab_size=VOCABULARY,
            d_model=DIM,
            d_kv=DIM // HEADS,
            d_ff=hidden,
            num_layers=LAYERS,
            num_decoder_layers=LAYERS,
            num_heads=HEADS,
            dropout_rate=0.0,
            tie_word_embeddings=False,
            decoder_start_token_id=0,
        )
        return transformers.T5ForConditionalGeneration(config).eval()

    narrow = sum(weight.numel() for weight in build(8).parameters())
    return build(8 + max(0, round((parameters - narrow) / (2 * LAYERS * 2 * DIM))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--parameters", type=int, required=True, help="as decode.py prints them")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    model = model_of(options.parameters)
    for length in LENGTHS:
        for batch in BATCHES:
            inputs = torch.randint(2, VOCABULARY, (batch, INPUTS))
            times = []
            with torch.inference_mode():
                for _ in range(options.rounds + 1):
                    start = time.perf_counter()
                    ids = model.generate(inputs, max_new_tokens=length, min_new_tokens=length, do_sample=False)
                    times.append(time.perf_counter() - start)
            seconds, written = statistics.median(times[1:]), ids.shape[1] - 1
            line = {
                "what": "decode",
                "backend": "transformers",
                "parameters": sum(weight.numel() for weight in model.parameters()),
                "batch": batch,
                "length": written,
                "ms_per_position": round(seconds / written * 1e3, 2),
                "tokens_per_s": round(batch * written / seconds),
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
