"""Runs ``python -m multiverso ARGUMENT...``: the harness can start only files, not modules."""

import runpy

runpy.run_module("multiverso", run_name="__main__", alter_sys=True)
