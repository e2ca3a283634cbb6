"""``burnish chat``: talk to the model and rate each answer."""
