"""tests/training/objectives"""
