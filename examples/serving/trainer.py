"""Trains a recommender and publishes it to a folder, for servers on any machine (server.py).

    python examples/serving/trainer.py --to published
    mpirun -np 2 python examples/serving/trainer.py --to published --steps 2000

Users and items have text ids. Each has a vector in a table with a row for each key, and a user
likes an item whose vector points in the same direction. Users who have not been seen for long lose
their rows to new ones. The lines for Multiverso are marked `MULTIVERSO`.
"""

import argparse

import numpy as np

import multiverso as mv

FACTORS = 8
BATCH = 64
RATE = 0.5
#: The users and items that exist at the same time, and how many users the table has room for.
ACTIVE_USERS, ITEMS, CAPACITY = 500, 100, 800


def clicks(rng, step):
    """Return a batch of users, items, and whether each user likes the item, by their groups."""
    # Every step a user leaves and another one comes.
    users = step + rng.integers(0, ACTIVE_USERS, BATCH)
    items = rng.integers(0, ITEMS, BATCH)
    names = [[f"user-{user}" for user in users], [f"item-{item}" for item in items]]
    return *names, (users % 4 == items % 4).astype(np.float32)


def gradients(users, items, likes):
    """Return the gradients of the logistic loss for the vectors of users and items."""
    scores = 1 / (1 + np.exp(-(users * items).sum(axis=1)))
    slopes = (scores - likes)[:, None] / BATCH
    return slopes * items, slopes * users


def train(args):
    """Train, and publish every so many steps."""
    rng = np.random.default_rng(mv.worker_id())
    # MULTIVERSO: all workers share the rows. A user who needs one takes that of the least recent.
    initial = mv.initializers.RandomNormal(stddev=0.3, seed=1)
    options = {"updater": "adagrad", "learning_rate": RATE}
    users = mv.HashTable(FACTORS, CAPACITY, initial, evict="lru", name="users", **options)
    items = mv.HashTable(FACTORS, ITEMS, initial, name="items", **options)
    for step in range(1, args.steps + 1):
        names_of_users, names_of_items, likes = clicks(rng, step)
        # MULTIVERSO: a text becomes a key, on all machines the same one.
        user_keys, item_keys = mv.hash_keys(names_of_users), mv.hash_keys(names_of_items)
        deltas = gradients(users.get(user_keys), items.get(item_keys), likes)
        users.add(deltas[0], user_keys)
        items.add(deltas[1], item_keys)
        if step % args.every == 0:
            # MULTIVERSO: written in the background, while the workers go on.
            mv.publish(step, to=args.to, keep=args.keep)
    if mv.is_master_worker():
        print(f"published {args.steps // args.every} times to {args.to}")


def main():
    """Train in a session."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", required=True, metavar="FOLDER", help="where to publish")
    parser.add_argument("--steps", type=int, default=2000, help="(default 2000)")
    parser.add_argument("--every", type=int, default=200, help="steps, default 200")
    parser.add_argument("--keep", type=int, default=3, help="publications, default 3")
    args = parser.parse_args()
    # MULTIVERSO: readers on this machine could also attach to this name.
    with mv.session(name="recommender"):
        train(args)


if __name__ == "__main__":
    main()
