"""Reward models: learnt from ratings, they score the answers that come after."""
