"""Executes a compiled program as a rank of the harness: ``native.py PROGRAM ARGUMENT...``."""

import os
import sys

import worker


def main():
    worker.begin()
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
