"""proxy/learner"""
