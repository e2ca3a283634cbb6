"""tests/training"""
