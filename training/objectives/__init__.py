"""training/objectives"""
