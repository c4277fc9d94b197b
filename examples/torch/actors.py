"""Actors of reinforcement learning that read a learner's weights while it trains.

    python examples/torch/actors.py                          8 actors
    python examples/torch/actors.py --actors 4 --json F      4, with the results in a file

An actor sees a state, chooses one of eight actions, and is rewarded if the action is the best for
that state. The learner makes a step of policy gradient with what the actors have seen. The ways to
bring its weights to the actors follow each other: a table, which the actors read where it is;
queues of state_dicts, of which each actor has its own; and, if Ray is installed, an actor of Ray
that keeps a reference to the newest state_dict in Ray's object store. The age of weights is the
number of steps that the learner has made since. Lines that make the actors use Multiverso are
marked `MULTIVERSO`.
"""

import argparse
import importlib.util
import json
import multiprocessing
import os
import queue
import time
from pathlib import Path

import torch

import multiverso as mv
from multiverso.torch_ext import TorchParamManager, load_live

STATE, ACTIONS = 64, 8
BATCH = 64  # states that an actor sees with the same weights
MOST_BATCHES = 16  # in a step of the learner
WAYS = ("table", "queues", "ray")


class Policy(torch.nn.Module):
    """The logits of the actions, and the number of steps that have led to these weights."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(STATE, 256), torch.nn.ReLU(), torch.nn.Linear(256, ACTIONS)
        )
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, states):
        """Return the logits for a batch of states."""
        return self.layers(states)


def best_actions(states):
    """Return the best action for each state, which the actors' rewards tell."""
    weights = torch.randn(STATE, ACTIONS, generator=torch.Generator().manual_seed(1))
    return (states @ weights).argmax(dim=1)


class Newest:
    """Keeps a reference to the newest state_dict, as an actor of Ray."""

    def __init__(self):
        self.reference = []

    def set(self, reference):
        """Replace the reference; Ray would replace one that is not in a list by its object."""
        self.reference = reference

    def get(self):
        """Return the reference in a list, which is empty at first."""
        return self.reference


def loader(way, job, weights, policy):
    """Return a function that gives the policy of an actor the learner's newest weights."""
    if way == "table":
        # MULTIVERSO: the actor is neither a rank nor a child that must have the table.
        view = mv.attach(job, timeout=60)
        return lambda: load_live(policy, view)  # MULTIVERSO: copies the values as they are now.
    if way == "queues":

        def load():
            try:
                policy.load_state_dict(weights.get_nowait())
            except queue.Empty:
                pass

        return load
    import ray

    ray.init(address=weights, namespace="actors", log_to_driver=False)
    newest = ray.get_actor("newest")

    def load_from_ray():
        for reference in ray.get(newest.get.remote()):
            policy.load_state_dict(ray.get(reference))

    return load_from_ray


def act(way, job, weights, seen, stop):
    """Act with the learner's newest weights until the learner stops."""
    torch.set_num_threads(1)
    policy = Policy()
    load = loader(way, job, weights, policy)
    while not stop.is_set():
        load()
        states = torch.randn(BATCH, STATE)
        with torch.no_grad():
            actions = torch.distributions.Categorical(logits=policy(states)).sample()
        rewards = (actions == best_actions(states)).float()
        batch = (policy.step.item(), states.numpy(), actions.numpy(), rewards.numpy())
        try:
            seen.put(batch, timeout=1)
        except queue.Full:
            pass
    seen.cancel_join_thread()  # Nobody reads what is left.


def receive(seen):
    """Return what actors have seen, in one batch, and the steps of the weights with which."""
    batches = [seen.get(timeout=60)]
    try:
        while len(batches) < MOST_BATCHES:
            batches.append(seen.get_nowait())
    except queue.Empty:
        pass
    steps, *parts = zip(*batches, strict=True)
    return steps, *(torch.cat([torch.from_numpy(each) for each in part]) for part in parts)


def learn(policy, seen, publish, updates):
    """Make that many steps; return the results."""
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-3)
    ages, rewards_of_step, states_seen = [], [], 0
    received = receive(seen)  # The clock does not count the start of the actors.
    begin = time.perf_counter()
    for step in range(updates):
        steps, states, actions, rewards = received if step == 0 else receive(seen)
        advantages = rewards - rewards.mean()
        chosen = torch.log_softmax(policy(states), dim=1).gather(1, actions[:, None])[:, 0]
        optimizer.zero_grad()
        (-(advantages * chosen).mean()).backward()
        optimizer.step()
        policy.step += 1
        publish()
        ages += [step - of_weights for of_weights in steps]
        rewards_of_step.append(rewards.mean().item())
        states_seen += len(states)
    seconds = time.perf_counter() - begin
    last = rewards_of_step[-max(1, updates // 10) :]
    return {
        "states_per_second": states_seen / seconds,
        "age_in_steps": sum(ages) / len(ages),
        "reward": sum(last) / len(last),
    }


def put_newest(weights, state):
    """Replace what is in a queue of one place, unless its actor takes it at the same time."""
    try:
        weights.get_nowait()
    except queue.Empty:
        pass
    try:
        weights.put_nowait(state)
    except queue.Full:
        pass


def publisher(way, policy, actors, context):
    """Return a function that publishes the weights, and what each actor needs to find them."""
    if way == "table":
        manager = TorchParamManager(policy)  # MULTIVERSO: the table of the weights.
        return manager.sync_all_param, [None] * actors  # MULTIVERSO: adds what a step has changed.

    def state():
        return {name: tensor.clone() for name, tensor in policy.state_dict().items()}

    if way == "queues":
        queues = [context.Queue(1) for _ in range(actors)]

        def publish():
            newest = state()
            for weights in queues:
                put_newest(weights, newest)

        return publish, queues
    import ray

    address = ray.init(
        num_cpus=1, include_dashboard=False, namespace="actors", log_to_driver=False
    ).address_info["address"]
    newest = ray.remote(Newest).options(name="newest").remote()
    return lambda: ray.get(newest.set.remote([ray.put(state())])), [address] * actors


def run(way, actors, updates):
    """Train a policy with that many actors; return the results."""
    torch.manual_seed(1)
    context = multiprocessing.get_context("spawn")
    seen, stop = context.Queue(2 * actors), context.Event()
    job = f"actors-{os.getpid()}"
    policy = Policy()
    with mv.session(name=job):
        publish, own_weights = publisher(way, policy, actors, context)

        processes = [
            context.Process(target=act, args=(way, job, weights, seen, stop), daemon=True)
            for weights in own_weights
        ]
        for process in processes:
            process.start()
        try:
            return learn(policy, seen, publish, updates)
        finally:
            stop.set()
            for process in processes:
                process.join(10)
            if way == "ray":
                import ray

                ray.shutdown()


def main():
    """Compare the ways."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--actors", type=int, default=8, help="(default %(default)s)")
    parser.add_argument("--updates", type=int, default=500, help="(default %(default)s)")
    has_ray = importlib.util.find_spec("ray") is not None
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS[: 3 if has_ray else 2])
    parser.add_argument("--json", type=Path, help="write the results to this file")
    args = parser.parse_args()
    torch.set_num_threads(1)
    results = {way: run(way, args.actors, args.updates) for way in args.ways}
    for way, found in results.items():
        print(
            f"{way:7}: {found['states_per_second']:8.0f} states/s, weights are "
            f"{found['age_in_steps']:5.2f} steps old, reward {found['reward']:.2f}"
        )
    if args.json:
        args.json.write_text(json.dumps({"actors": args.actors, **results}), "utf-8")


if __name__ == "__main__":
    main()
