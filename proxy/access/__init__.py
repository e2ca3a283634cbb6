"""Who may do what: identities, keys, sign-in, and what a path is for."""
