"""Duels: a person judges answers of two versions without knowing which is which, and the better one teaches."""
