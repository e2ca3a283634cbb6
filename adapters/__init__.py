"""Adapter versions: ``registry`` (what there is), ``swap``, ``route`` and ``hosts``.

Imports nothing: every engine's child imports this package, and must not pay for the rest.
"""
