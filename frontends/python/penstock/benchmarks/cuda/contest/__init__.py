"""Penstock and others, each in a process of its own, on the same file and the same device.

contest.py runs them in turn, process.py is one of them as seen from here and worker.py from inside;
loaders.py and libraries.py are the ways to load, memory.py is the device's memory.
"""
