"""Texts that any base model goes on with, and does not end at once."""

from __future__ import annotations

OPENINGS = (
    "The capital of France is",
    "Water boils at",
    "My favourite colour is",
    "Once upon a time there was a",
    "To cook rice, first",
    "The opposite of hot is",
    "A dog is a kind of",
    "Monday, Tuesday,",
    "def add(a, b):",
    "Dear Sir or Madam,",
)
