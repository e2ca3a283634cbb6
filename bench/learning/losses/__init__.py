"""Losses to compare the product's with: ``train.objective = "bench.learning.losses.forms:published"``.

They see the advantages and weights that ``mis_po`` sees.
"""
