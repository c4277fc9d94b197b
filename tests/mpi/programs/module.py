"""What ``python -m multiverso ARGUMENT...`` is."""

import runpy

runpy.run_module("multiverso", run_name="__main__", alter_sys=True)
