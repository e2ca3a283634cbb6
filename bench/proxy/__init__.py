"""The cost of a proxy: burnish and others between the same load and the same upstream."""
