"""From ratings to a candidate adapter. A step runs as ``python -m burnish.training train|evaluate|reward DIR``.

``burnish.training.job`` has what others need to write a job and read its outcome.
"""
