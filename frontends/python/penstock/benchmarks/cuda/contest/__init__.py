"""Penstock and rivals, each in its own process, on the same file and the same device.

contest.py runs them in turn. process.py is the parent's side of a worker process, and worker.py is
the worker itself. loaders.py and libraries.py have the ways to load, memory.py the device's memory.
"""
