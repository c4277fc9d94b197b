"""FSDP2 of PyTorch: each rank stores a part of each parameter."""

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler
from torch_training import BATCH_SIZE, network, samples


def train(backend):
    """Train, and return the losses and the parameters."""
    distributed.init_process_group(backend)
    model = network()
    mesh = init_device_mesh("cpu", (distributed.get_world_size(),))
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = samples()
    losses = []
    for inputs, targets in DataLoader(data, BATCH_SIZE, sampler=DistributedSampler(data)):
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.full_tensor() for parameter in model.parameters()]
