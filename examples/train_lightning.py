"""Train a character transformer by PyTorch Lightning, over gradwire by one word.

Run it by ``python examples/train_lightning.py --backend gradwire``: Lightning starts both ranks.
Everything else is as with Gloo.
"""

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.strategies import DDPStrategy
from torch.utils.data import DataLoader

from transformer import arguments, batch, loss_of, told, transformer


class Characters(LightningModule):
    """The transformer, its loss and its optimiser."""

    def __init__(self) -> None:
        """Make the model."""
        super().__init__()
        self.model = transformer()
        self.losses: list[float] = []

    def training_step(self, pair: list[torch.Tensor]) -> torch.Tensor:
        """Return the loss of a batch; keep its mean over all ranks."""
        inputs, targets = pair
        loss = loss_of(self.model(inputs), targets)
        self.losses.append(self.trainer.strategy.reduce(loss.detach()).item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimiser."""
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def main() -> None:
    """Train as the arguments say and print losses."""
    chosen = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    texts = [
        pair for step in range(chosen.steps) for pair in zip(*batch(step, size=16), strict=True)
    ]
    characters = Characters()
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend=chosen.backend),
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(characters, DataLoader(texts, batch_size=8))
    if trainer.is_global_zero:
        print(told(characters.losses))


if __name__ == "__main__":
    main()
