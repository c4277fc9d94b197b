"""DistributedDataParallel of PyTorch, with several buckets, so that sums overlap with backward."""

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
from torch_training import BATCH_SIZE, network, samples


def train(backend):
    """Train, and return the losses and the parameters."""
    distributed.init_process_group(backend)
    model = DistributedDataParallel(network(), bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = samples()
    losses = []
    for inputs, targets in DataLoader(data, BATCH_SIZE, sampler=DistributedSampler(data)):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, model.parameters()
