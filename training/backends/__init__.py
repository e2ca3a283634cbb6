"""training/backends"""
