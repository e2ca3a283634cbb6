"""proxy/surfaces"""
