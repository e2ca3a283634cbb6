"""House conventions: comments of a user who corrects a coding assistant, against a sentence in the prompt.

``python -m bench.conventions`` runs it, from a checkout.
"""
