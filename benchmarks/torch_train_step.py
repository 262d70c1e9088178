"""The rival: the paper's body and one training step in plain PyTorch, as its users would write them.

The options and the JSON line are those of `train_step.py`. It needs torch and nothing else.

    python benchmarks/torch_train_step.py --dim 256 --experts 16 --batch 16 --inputs 64 --targets 64 --bf16 --compile
"""

import math
import time

import torch
import workload
from torch import nn
from torch.nn import functional


def timing_signal(length, dim):
    """Sines and cosines `(length, dim)`, interleaved."""
    rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(1e4) / dim))
    angles = torch.arange(length).unsqueeze(1) * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class SeparableStep(nn.Module):
    """LayerNorm(pointwise(depthwise(ReLU(x)))), `(b, n, d)` -> `(b, n, d)`."""

    def __init__(self, dim, kernel_size, dilation, causal):
        super().__init__()
        reach = dilation * (kernel_size - 1)
        self.padding = (reach, 0) if causal else (reach // 2, reach // 2)
        self.depthwise = nn.Conv1d(dim, dim, kernel_size, groups=dim, dilation=dilation, bias=False)
        self.pointwise = nn.Linear(dim, dim, bias=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        channels_first = functional.pad(torch.relu(x).mT, self.padding)
        return self.norm(self.pointwise(self.depthwise(channels_first).mT))


class ConvBlock(nn.Module):
    def __init__(self, dim, causal):
        super().__init__()
        self.first = nn.Sequential(*(SeparableStep(dim, 3, 1, causal) for _ in range(2)))
        self.second = nn.Sequential(*(SeparableStep(dim, 15, dilation, causal) for dilation in (1, 8)))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return self.dropout(x + self.second(x + self.first(x)))


class Attention(nn.Module):
    def __init__(self, dim, heads=8):
        super().__init__()
        self.heads = heads
        self.query, self.key = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.value, self.output = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)

    def forward(self, target, source, causal=False):
        query, key, value = (
            projection(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for projection, x in ((self.query, target), (self.key, source), (self.value, source))
        )
        heads = functional.scaled_dot_product_attention(query, key, value, is_causal=causal)
        return self.output(heads.transpose(1, 2).flatten(2))


class AttentionBlock(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.steps = nn.Sequential(*(SeparableStep(dim, 3, 1, causal=True) for _ in range(2)))
        self.self_attention, self.attention = Attention(dim), Attention(dim)

    def forward(self, x, source, timing):
        query = self.steps(x + timing[: x.shape[1]])
        return x + self.attention(self.self_attention(query, query, causal=True), source)


class Experts(nn.Module):
    """Each token to its k best experts; an expert takes at most 1.25 times its share, the rest pass by."""

    def __init__(self, dim, experts, k):
        super().__init__()
        self.k = k
        self.gate = nn.Linear(dim, experts, bias=False)
        self.expand, self.reduce = (nn.Parameter(torch.randn(experts, dim, dim) / dim**0.5) for _ in range(2))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        tokens, experts = x.flatten(0, 1), len(self.expand)
        logits = self.gate(tokens).float()
        best, chosen = logits.topk(self.k)
        counts = functional.one_hot(chosen, experts).sum((0, 1))
        self.loss = experts * (logits.softmax(-1).mean(0) * counts / chosen.numel()).sum()
        room = 1 + int(1.25 * chosen.numel() / experts)
        by_expert, order = chosen.flatten().sort(stable=True)
        rank = torch.arange(len(order)) - (counts.cumsum(0) - counts)[by_expert]
        fits = rank < room
        slots, owners = (by_expert * room + rank)[fits], order[fits] // self.k
        rows = tokens.new_zeros(experts * room, tokens.shape[1]).index_copy(0, slots, tokens[owners])
        rows = torch.relu(rows.unflatten(0, (experts, room)) @ self.expand) @ self.reduce
        rows = rows.flatten(0, 1)[slots] * best.softmax(-1).flatten()[order[fits]].unsqueeze(1)
        return self.norm(x + torch.zeros_like(tokens, dtype=rows.dtype).index_add(0, owners, rows).view_as(x))


class MultiModel(nn.Module):
    """Six ConvBlocks with experts in their middle; attention and two; four pairs, with experts in their middle."""

    def __init__(self, options):
        super().__init__()
        dim, k = options.dim, min(options.k, options.experts)
        self.embed_inputs, self.embed_targets = nn.Embedding(options.vocab, dim), nn.Embedding(options.vocab, dim)
        self.register_buffer("timing", timing_signal(max(options.inputs, options.targets), dim))
        conv = [ConvBlock(dim, causal=False) for _ in range(6)]
        self.encoder = nn.Sequential(*conv[:3], Experts(dim, options.experts, k), *conv[3:])
        self.mixer_attention = AttentionBlock(dim)
        self.mixer = nn.Sequential(*(ConvBlock(dim, causal=True) for _ in range(2)))
        self.decoder_conv = nn.ModuleList(ConvBlock(dim, causal=True) for _ in range(4))
        self.decoder_attention = nn.ModuleList(AttentionBlock(dim) for _ in range(4))
        self.decoder_experts = Experts(dim, options.experts, k)
        self.softmax = nn.Linear(dim, options.vocab, bias=False)

    def forward(self, inputs, targets):
        scale = self.timing.shape[1] ** 0.5
        encoded = self.encoder(self.embed_inputs(inputs) * scale + self.timing[: inputs.shape[1]])
        shifted = functional.pad(self.embed_targets(targets[:, :-1]), (0, 0, 1, 0)) * scale
        x = self.mixer(self.mixer_attention(shifted, encoded, self.timing))
        for i, (conv, attention) in enumerate(zip(self.decoder_conv, self.decoder_attention, strict=True)):
            x = attention(conv(x), encoded, self.timing)
            x = self.decoder_experts(x) if i == 1 else x
        logits = self.softmax(x).float().flatten(0, 1)
        loss = functional.cross_entropy(logits, targets.flatten(), label_smoothing=0.1)
        return loss + 0.01 * (self.encoder[3].loss + self.decoder_experts.loss)


def main():
    parser = workload.parser(__doc__.partition("\n")[0])
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = MultiModel(options)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run = torch.compile(model) if options.compile else model
    batch = [torch.randint(2, options.vocab, (options.batch, n)) for n in (options.inputs, options.targets)]

    def step():
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            loss = run(*batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()
        loss.item()
        return time.perf_counter() - start

    first, _, *seconds = (step() for _ in range(options.steps + 2))
    dtype = torch.bfloat16 if options.bf16 else torch.float32
    matrix = torch.randn(workload.MATRIX, workload.MATRIX).to(dtype)
    workload.print_line(
        f"torch {torch.__version__} {'compile' if options.compile else 'eager'}",
        str(dtype).removeprefix("torch."),
        sum(weight.numel() for weight in model.parameters()),
        first,
        seconds,
        workload.matrix_gflops(lambda: matrix @ matrix),
        options,
    )


if __name__ == "__main__":
    main()
