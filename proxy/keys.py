"""Keys between agents, burnish and what answers: names that several parts must agree on. A leaf."""

from __future__ import annotations

KEY_HEADER = "x-burnish-key"
"""Where burnish's own key may stand, so that ``Authorization`` is free for that of what answers."""
ANY_KEY = "burnish"
"""What agents are given that ask nobody without a key, where none is needed."""
NO_KEYS = frozenset({ANY_KEY, "-", "DUMMY_KEY"})
"""Keys that stand for none: that one, the one in our examples, and what ``llm`` sends without one."""
