"""Serves the recommender that trainer.py publishes, with FastAPI, from any machine.

    PUBLISHED=published uvicorn --app-dir examples/serving server:app
    curl 'http://127.0.0.1:8000/items?user=user-1900&count=3'

The server needs no MPI and no connection to the trainer, which may be restarted meanwhile. A
thread brings its copy of the tables to each new publication. Requests wait for it only while it
changes the tables, not while it reads files. The lines for Multiverso are marked `MULTIVERSO`.
"""

import contextlib
import logging
import os
import threading

import numpy as np
from fastapi import FastAPI, HTTPException

import multiverso as mv

NUM_ITEMS = 100
ITEMS = [f"item-{number}" for number in range(NUM_ITEMS)]


def follow(view, is_ending):
    """Follow the trainer until the server ends. The tables keep their version after an error."""
    while not is_ending.is_set():
        with contextlib.suppress(mv.OperationTimeout):
            try:
                view.wait(timeout=1)
            except mv.errors.PublicationError as error:
                logging.getLogger("uvicorn.error").warning("%s", error)
                is_ending.wait(1)


@contextlib.asynccontextmanager
async def lifespan(app):
    """Follow the folder while the server runs."""
    # MULTIVERSO: the tables as of the last publication.
    app.state.view = mv.follow(os.environ.get("PUBLISHED", "published"), timeout=60)
    is_ending = threading.Event()
    thread = threading.Thread(target=follow, args=(app.state.view, is_ending))
    thread.start()
    yield
    is_ending.set()
    thread.join()
    app.state.view.close()


app = FastAPI(lifespan=lifespan)


@app.get("/items")
def items(user: str, count: int = 5):
    """Return the items that a user is likely to like, the best first."""
    view = app.state.view
    keys = mv.hash_keys([user])
    # MULTIVERSO: with the lock, both tables are of one version.
    with view.lock:
        users, items = view.tables["users"], view.tables["items"]
        if not users.contains(keys)[0]:
            raise HTTPException(404, f"{user} is unknown, or has not been seen for long")
        vector = users.get(keys)[0]
        exists = items.contains(mv.hash_keys(ITEMS))
        names = np.array(ITEMS)[exists]
        vectors = items.get(mv.hash_keys(names.tolist()))
        step = view.step
    scores = vectors @ vector
    best = np.argsort(-scores)[:count]
    return {"step": step, "items": [{"id": str(names[i]), "score": float(scores[i])} for i in best]}


@app.get("/version")
def version():
    """Return which publication the server has."""
    with app.state.view.lock:
        return {"version": app.state.view.version, "step": app.state.view.step}
