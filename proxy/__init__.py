"""The request path and everything that a client can call. Start at ``app.running`` and ``serve.serve``."""
