"""The model of trainer.py and server.py: who likes what, from the texts that name users and items.

The trainer creates it with tables of its session, and the server with those of a view.
"""

import torch

import multiverso as mv
from multiverso.torch_ext import Embedding

FACTORS = 8
ITEMS = [f"item-{number}" for number in range(100)]


def tower():
    """Return the dense layers of users, or of items."""
    return torch.nn.Sequential(
        torch.nn.Linear(FACTORS, 16), torch.nn.ReLU(), torch.nn.Linear(16, FACTORS)
    )


class TwoTowers(torch.nn.Module):
    """Scores pairs of users and items by the product of what their towers make of their rows."""

    def __init__(self, users, items):
        super().__init__()
        # MULTIVERSO: the rows are in tables.
        self.user_rows, self.item_rows = Embedding(users), Embedding(items)
        self.user_tower, self.item_tower = tower(), tower()

    def forward(self, users, items):
        """Return a score for each pair of texts; one user has pairs with all items."""
        # MULTIVERSO: a text has the same key in every process.
        user_keys, item_keys = (torch.from_numpy(mv.hash_keys(texts)) for texts in (users, items))
        user_vectors = self.user_tower(self.user_rows(user_keys))
        return (user_vectors * self.item_tower(self.item_rows(item_keys))).sum(1)
