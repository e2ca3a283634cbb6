"""tests/support"""
