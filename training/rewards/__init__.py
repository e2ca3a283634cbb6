"""Learns reward models (``gate.rewards``): one from all ratings that serves, one in a run, and a third party's."""
