"""Accelerate of Hugging Face, whose `Accelerator` wraps the model and divides the data.

Accelerate accepts only names of backends that it knows. It uses the group that the program has made
before.
"""

import torch
from accelerate import Accelerator
from torch import distributed
from torch.utils.data import DataLoader
from torch_training import BATCH_SIZE, network, samples


def train(backend):
    """Train, and return the losses and the parameters."""
    distributed.init_process_group(backend)
    accelerator = Accelerator(cpu=True)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(
        model, optimizer, DataLoader(samples(), BATCH_SIZE)
    )
    losses = []
    for inputs, targets in loader:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses += accelerator.gather_for_metrics(loss.detach()).tolist()
    accelerator.wait_for_everyone()
    return losses, model.parameters()
