"""HTTP on both sides: the listener for clients, pooled connections to upstreams."""
