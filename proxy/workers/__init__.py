"""Several worker processes that answer requests, and one process with the log, the engine and the learning.

``crew`` starts the workers, ``worker`` is their program, ``hub`` serves them, ``link`` carries messages both ways.
"""
