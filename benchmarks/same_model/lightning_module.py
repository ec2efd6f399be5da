"""As a LightningModule."""

import torch
from lightning import LightningModule
from parts import BATCH, RATE, Crops, Net
from torch.utils.data import DataLoader


class Module(LightningModule):
    """The shared network."""

    def __init__(self):
        super().__init__()
        self.net = Net()

    def training_step(self, batch, index):
        """Its own loss."""
        return self.net(**batch)["loss"]

    def configure_optimizers(self):
        """As in the other forms."""
        return torch.optim.AdamW(self.parameters(), lr=RATE)

    def train_dataloader(self):
        """As in the other forms."""
        return DataLoader(Crops(), batch_size=BATCH, shuffle=True)
