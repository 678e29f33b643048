"""The model, the text and the arguments of the examples that train a transformer over characters.

The module knows neither gradwire nor ranks: the text is source code that comes with Python, and the
batches of a step are drawn from a seed, so that every backend trains on the same ones.
"""

import argparse
import functools
from pathlib import Path

import torch
from torch import nn

WIDTH = 64
HEADS = 4
LAYERS = 4
LENGTH = 64
CHARACTERS = 128


class Attention(nn.Module):
    """Causal attention over as many heads as its projections have outputs for."""

    def __init__(self) -> None:
        """Four projections, each of which may be sharded."""
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH, bias=False)
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map (batch, characters, WIDTH) to the same shape."""
        batch, length, _ = inputs.shape

        def heads(projection: nn.Linear) -> torch.Tensor:
            return projection(inputs).view(batch, length, -1, WIDTH // HEADS).transpose(1, 2)

        attended = nn.functional.scaled_dot_product_attention(
            heads(self.query), heads(self.key), heads(self.value), is_causal=True
        )
        return self.out(attended.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    """Attention and two linear layers, each added to its input."""

    def __init__(self) -> None:
        """Norms, attention, an expansion by four."""
        super().__init__()
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm_expansion = nn.LayerNorm(WIDTH)
        self.expand = nn.Linear(WIDTH, 4 * WIDTH)
        self.contract = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Map (batch, characters, WIDTH) to the same shape."""
        inputs = inputs + self.attention(self.norm_attention(inputs))
        expanded = nn.functional.gelu(self.expand(self.norm_expansion(inputs)))
        return inputs + self.contract(expanded)


class Embedding(nn.Module):
    """Characters and their positions."""

    def __init__(self) -> None:
        """One vector per character and per position."""
        super().__init__()
        self.character = nn.Embedding(CHARACTERS, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map tokens of (batch, characters) to (batch, characters, WIDTH)."""
        return self.character(tokens) + self.position.weight[: tokens.shape[1]]


def transformer(seed: int = 1) -> nn.Sequential:
    """Build embedding, blocks and head, with the same parameters on every rank."""
    torch.manual_seed(seed)
    head = nn.Linear(WIDTH, CHARACTERS)
    return nn.Sequential(Embedding(), *(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH), head)


def batch(step: int, size: int, part: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw the inputs and targets of a step, both (size, LENGTH); each ``part`` has its own."""
    text = _text()
    draws = torch.Generator().manual_seed(1_000 * step + part)
    starts = torch.randint(len(text) - LENGTH, (size,), generator=draws)
    windows = torch.stack([text[start : start + LENGTH + 1] for start in starts.tolist()])
    return windows[:, :-1], windows[:, 1:]


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of the next character, in nats."""
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def arguments(about: str) -> argparse.ArgumentParser:
    """Make the parser that the examples share; the first line of ``about`` describes one."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--backend", default="gradwire", help="gradwire or gloo")
    parser.add_argument("--steps", type=int, default=200)
    return parser


def told(losses: list[float]) -> str:
    """Say how training went."""
    return f"loss {losses[0]:.4f} in the first step, {losses[-1]:.4f} in the last"


@functools.cache
def _text() -> torch.Tensor:
    return torch.tensor(list(Path(argparse.__file__).read_bytes())).clamp(max=CHARACTERS - 1)
