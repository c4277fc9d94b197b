"""Trains a recommender with two towers, and publishes it for server.py.

    multiverso run -np 2 examples/serving/trainer.py --folder shop
    python examples/serving/trainer.py --folder shop --back-to 400 --steps 400

Users and items have text ids, whose rows are in hash tables; a user who has not been seen for long
loses the row to a new one. The dense towers are synchronized in each step. Each release is a
publication for servers and a checkpoint. A trainer that is started again goes on from the last
checkpoint, or with --back-to from an earlier one, which it releases first, so that servers go back
to it too. The lines for Multiverso are marked `MULTIVERSO`.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from towers import FACTORS, ITEMS, TwoTowers

import multiverso as mv
from multiverso.checkpoint import saved_in
from multiverso.torch_ext import DistributedOptimizer

BATCH = 64
#: The users that exist at the same time, and how many have rows.
ACTIVE_USERS, CAPACITY = 200, 400


def clicks(rng, step):
    """Return a batch of users, items, and whether each user likes the item, by their groups."""
    # Every ten steps a user leaves and another one comes.
    users = step // 10 + rng.integers(0, ACTIVE_USERS, BATCH)
    items = rng.integers(0, len(ITEMS), BATCH)
    likes = torch.from_numpy(users % 4 == items % 4).float()
    return [f"user-{user}" for user in users], [ITEMS[item] for item in items], likes


def checkpoint_of(folder, step):
    """Return the newest checkpoint of a step."""
    paths = [path for path in saved_in(folder) if path.name.endswith(f"-step-{step}")]
    if not paths:
        raise SystemExit(f"{folder}: no checkpoint is of step {step}")
    return paths[-1]


def train(args):
    """Train, and release every so many steps."""
    # MULTIVERSO: all workers share the rows. A user who needs one takes that of the least recent.
    initial = mv.initializers.RandomNormal(stddev=0.3, seed=1)
    options = {"updater": "adagrad", "learning_rate": 0.3}
    users = mv.HashTable(FACTORS, CAPACITY, initial, evict="lru", name="users", **options)
    items = mv.HashTable(FACTORS, len(ITEMS), initial, name="items", **options)
    model = TwoTowers(users, items)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer = DistributedOptimizer(adam, model, average=True)

    saved = Path(args.folder, "saved")
    published = Path(args.folder, "published")

    def release(step):
        # MULTIVERSO: servers get this version, and the next trainer goes on from it.
        mv.publish(step, to=published)
        mv.save(saved, step=step, keep=args.keep)
        if mv.is_master_worker():
            print(f"released step {step}", flush=True)

    # MULTIVERSO: all rows, their optimizers' state, and the towers.
    source = saved if args.back_to is None else checkpoint_of(saved, args.back_to)
    first = mv.load(source, missing_ok=True)
    if first is not None:
        optimizer.sync()
        release(first)
    rng = np.random.default_rng([mv.worker_id(), first or 0])
    for step in range((first or 0) + 1, args.steps + 1):
        user_names, item_names, likes = clicks(rng, step)
        optimizer.zero_grad()
        scores = model(user_names, item_names)
        # The sum, because the updater of a row should see each click on its own scale.
        torch.nn.functional.binary_cross_entropy_with_logits(
            scores, likes, reduction="sum"
        ).backward()
        optimizer.step()
        if step % args.every == 0:
            release(step)


def main():
    """Train in a session, whose name the servers on this machine know."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", required=True, help="for publications and checkpoints")
    parser.add_argument("--name", default="shop", help="of the session (default shop)")
    parser.add_argument("--steps", type=int, default=2000, help="(default 2000)")
    parser.add_argument("--every", type=int, default=200, help="steps (default 200)")
    parser.add_argument("--keep", type=int, default=5, help="checkpoints (default 5)")
    parser.add_argument("--back-to", type=int, metavar="STEP", help="an earlier checkpoint")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with mv.session(name=args.name):
        train(args)


if __name__ == "__main__":
    main()
