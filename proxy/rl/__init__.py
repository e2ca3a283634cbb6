"""``/rl``, as it is typed into a chat: its grammar, finding it in messages, and burnish's own words there."""
