"""How commands speak: to people in a terminal, and to a running burnish."""
