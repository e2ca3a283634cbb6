"""tests/training/backends"""
