"""How long must a network with very many labels train to reach a P@1?"""
