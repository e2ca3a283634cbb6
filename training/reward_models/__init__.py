"""Learns reward models from ratings, and compares them on ratings that they haven't seen."""
