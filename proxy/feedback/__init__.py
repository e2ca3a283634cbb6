"""proxy/feedback"""
