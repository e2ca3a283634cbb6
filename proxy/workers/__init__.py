"""Several worker processes that answer requests, and one process with the log, the engine and the learning.

``hub`` starts and serves the workers, ``worker`` is their program, ``link`` carries messages both ways.
"""
