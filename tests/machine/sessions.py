"""The calls of random programs about options, checkpoints, publications and sessions."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import multiverso as mv
from machine import formulas
from machine.gets import check_keys
from machine.operations import ALL, operation
from machine.tables import EXTRA_OPTIONS, draw_initializer
from multiverso._native.supported import refusal_of
from multiverso.tables._updaters import OPTIONAL, UPDATERS


class Saved(NamedTuple):
    """A checkpoint, with the models of its tables by their names."""

    path: Path
    step: int
    models: dict[str, Any]


@operation(kinds=ALL)
def set_option(program, twin):
    """Change some options on one worker, for all."""
    rng, who = program.rng, program.one()
    names = [name for name in UPDATERS[twin.spec.updater][1] if name != "learning_rate_power"]
    if program.in_rounds:
        names = [name for name in names if name != "clipnorm"]
    if not names:
        return False
    options = {}
    for name in rng.sample(names, rng.randrange(1, len(names) + 1)):
        base = formulas.OPTIONS[twin.spec.updater].get(name) or EXTRA_OPTIONS.get(name, 0.5)
        factors = (0, 0.5, 1) if name in EXTRA_OPTIONS else (0.25, 0.5, 1)
        options[name] = base * rng.choice(factors)
    program.settle(twin)
    if who == program.me:
        twin.table.set_option(**options)
    program.barrier()
    twin.model.options = {**twin.model.options, **options}
    shown = {k: v for k, v in twin.model.options.items() if v or k not in OPTIONAL}
    assert twin.table.options == shown, (twin.table.options, shown)
    program.barrier()
    return None


@operation(kinds=ALL)
def save(program, twin):
    """Save this table or all; what is saved is what the tables contain now."""
    if program.rng.random() < 0.6:
        save_all(program)
        return
    program.even_out()
    program.step += 1
    path = program.folder / f"saved-{program.step}"
    twin.table.save(path, step=program.step)
    program.saved.append(Saved(path, program.step, {twin.name: twin.model.copy()}))


def save_all(program):
    """Save all tables, in the background or not, as an increment or not."""
    program.even_out()
    program.step += 1
    path = program.folder / "saved"
    background, incremental = program.rng.random() < 0.5, program.rng.random() < 0.5
    mv.wait_for_save()
    mv.save(path, step=program.step, background=background, incremental=incremental)
    models = {twin.name: twin.model.copy() for twin in program.twins}
    program.saved = [saved for saved in program.saved if saved.path != path]
    program.saved.append(Saved(path, program.step, models))


@operation(kinds=ALL)
def load(program, twin):
    """Load what was saved last, of all tables or of this one."""
    fitting = [saved for saved in program.saved if twin.name in saved.models]
    if not fitting:
        return False
    path, step, models = fitting[-1]
    program.even_out()
    mv.wait_for_save()
    program.barrier()
    alone = len(models) < len(program.twins) or program.rng.random() < 0.5
    assert (twin.table.load(path) if alone else mv.load(path)) == step
    for each in [twin] if alone else program.twins:
        each.model = models[each.name].copy()
    program.barrier()
    return None


@operation("publish", kinds=ALL)
def publish(program, _):
    """Publish all tables in memory, and read them as another process does."""
    version = mv.publish(program.step)
    with mv.attach(os.getpid()) as view:
        cut = view.cut()
        assert (view.version, set(cut)) == (version, {twin.name for twin in program.twins})
        for twin in program.twins:
            rows = view.tables[twin.name].rows
            _check_cut(program, twin, cut[twin.name], rows, is_complete=program.nodes == 1)
    program.barrier()


@operation("publish", "publish to a folder", kinds=ALL)
def publish_to_a_folder(program, _):
    """Publish all tables in a folder, and follow it."""
    path = program.folder / "published"
    mv.publish(program.step, to=path, full_every=3)
    program.num_published += 1
    if program.rank == 0:
        if program.follower is None:
            program.follower = mv.follow(path, timeout=60)
        program.follower.wait(program.num_published, timeout=60)
        cut = program.follower.cut()
        for twin in program.twins:
            _check_cut(program, twin, cut[twin.name])
    program.barrier()


def _check_cut(program, twin, values, rows=slice(None), *, is_complete=True):
    if twin.spec.kind == "keys":
        check_keys(program, twin, *values, is_complete=is_complete)
    elif isinstance(values, tuple):  # the rows of a table with an initializer that have changed
        whole = twin.model.initial.copy()
        whole[values[0]] = values[1]
        program.check(twin, whole, twin.model.values)
    else:
        rows = slice(rows.start, rows.stop)
        program.check(twin, values, twin.values()[rows])


@operation(kinds=ALL)
def finish(program, twin):
    """End the adds of a worker, whose next add is an error if there are rounds."""
    if len(program.active) == 1 or program.rng.random() < 0.7:
        return False
    who = program.one()
    program.even_out()
    if program.me == who:
        mv.finish()
        if program.in_rounds or program.staleness:
            rows = twin.ids[:1]
            delta = np.ones((len(rows), twin.spec.shape[-1]), twin.spec.value_dtype)
            arguments = (delta[0],) if twin.spec.kind == "array" else (delta, rows)
            program.raises(mv.StateError, lambda: twin.table.add(*arguments), "finish")
    program.active = [worker for worker in program.active if worker != who]
    program.barrier()
    return None


@operation(kinds=ALL)
def restart(program, _):
    """End the session, and continue in another one, from files or from a checkpoint."""
    save_all(program)
    program.close_session()
    program.open_session()
    for twin in program.twins:
        spec = twin.spec
        if spec.kind != "keys" and not spec.on_disk and program.rng.random() < 0.3:
            start = draw_initializer(program.rng, spec.dtype)
            if refusal_of(*program.features, *spec.features(), "lazy") is None:
                spec.initializer = start
        if spec.on_disk:
            twin.model.options = dict(spec.options)
        else:
            twin.model = program.saved[-1].models[twin.name].copy()
        if spec.initializer is not None:
            twin.model.set_initial(spec.initial(twin.number))
        twin.create(program, np.zeros(spec.shape, spec.value_dtype))
        if spec.on_disk:
            assert twin.table.reopened
        else:
            twin.table.load(program.folder / "saved")
    program.barrier()
