"""Composition: the parts of a running burnish, its status and its metrics."""
