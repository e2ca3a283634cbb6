"""Several processes that answer requests, and one that keeps the log, the engine and the learning.

``hub`` is what the one has of the others, ``worker`` what each of the others runs, ``link`` what they say it over.
"""
