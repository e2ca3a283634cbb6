"""How well do reward models order replies that they haven't seen, and what do they prove?"""
