"""Stands for ``python -m multiverso ARGUMENT...``."""

import runpy

runpy.run_module("multiverso", run_name="__main__", alter_sys=True)
