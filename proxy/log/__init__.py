"""proxy/log"""
