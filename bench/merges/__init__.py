"""Merged models against the adapter at run time."""
