"""What it costs to stand in a request's way: burnish and others between the same load and the same upstream."""
