"""The Trainer of Transformers, with a tiny language model of random parameters.

It uses Accelerate, which accepts only names of backends that it knows, and the group that the
program has made before.
"""

import os

import torch
from torch import distributed
from torch_training import BATCH_SIZE, RANKS, STEPS
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

TOKENS = 50
LENGTH = 10


def sentences():
    """Return samples of random tokens."""
    generator = torch.Generator().manual_seed(7)
    drawn = torch.randint(TOKENS, (STEPS * BATCH_SIZE * RANKS, LENGTH), generator=generator)
    return [{"input_ids": tokens, "labels": tokens} for tokens in drawn]


def train(backend):
    """Train, and return the losses and the parameters."""
    distributed.init_process_group(backend)
    torch.manual_seed(8)
    config = GPT2Config(vocab_size=TOKENS, n_positions=LENGTH, n_embd=16, n_layer=2, n_head=2)
    arguments = TrainingArguments(
        output_dir=os.environ["TMPDIR"],
        use_cpu=True,
        per_device_train_batch_size=BATCH_SIZE,
        num_train_epochs=1,
        learning_rate=1e-2,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    data = sentences()
    trainer = Trainer(GPT2LMHeadModel(config), arguments, train_dataset=data, eval_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return [*losses, trainer.evaluate()["eval_loss"]], trainer.model.parameters()
