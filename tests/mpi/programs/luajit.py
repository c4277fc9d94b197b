"""Executes LuaJIT with this project's Lua modules: ``luajit.py SCRIPT ARGUMENT...``."""

import os
import sys
from pathlib import Path

import worker

LUA = Path(__file__).resolve().parents[3] / "lua"


def main():
    os.environ["LUA_PATH"] = f"{LUA}/?.lua;{LUA}/?/init.lua;;"
    os.environ["MULTIVERSO_TEST_SIZE"] = str(worker.SIZE)
    worker.begin()
    os.execvp("luajit", ["luajit", *sys.argv[1:]])


if __name__ == "__main__":
    main()
