"""Lightning, whose `Trainer` takes the name of the backend from its strategy."""

import os

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch.utils.data import DataLoader
from torch_training import BATCH_SIZE, network, samples


class Module(LightningModule):
    """A model that keeps the mean loss of all ranks in each step."""

    def __init__(self):
        super().__init__()
        self.network = network()
        self.losses = []

    def training_step(self, batch, index):
        """Return the loss of a batch."""
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.network(inputs), targets)
        self.log("loss", loss, sync_dist=True)
        self.losses.append(self.all_gather(loss.detach()).mean().item())
        return loss

    def configure_optimizers(self):
        """Return the optimizer."""
        return torch.optim.SGD(self.parameters(), lr=0.05)


def train(backend):
    """Train, and return the losses and the parameters."""
    trainer = Trainer(
        accelerator="cpu",
        devices=2,
        strategy=DDPStrategy(process_group_backend=backend),
        max_epochs=1,
        log_every_n_steps=1,
        default_root_dir=os.environ["TMPDIR"],
        enable_progress_bar=False,
        logger=False,
    )
    module = Module()
    trainer.fit(module, DataLoader(samples(), BATCH_SIZE))
    return module.losses, module.parameters()
