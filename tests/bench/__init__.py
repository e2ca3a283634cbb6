"""tests/bench"""
