"""How much loss training takes: real training, real sockets, packets dropped on purpose.

``python -m gradwire.study`` trains two small tasks on four ranks of this machine, over UDP, once
for every cell of a grid of loss rates, rules for holes, transforms and seeds, and tabulates how
long each needs to be as good as without losses. Start at ``cells`` (the grid), ``ranks`` (its
processes), ``training`` (one rank) and ``findings`` (the results).
"""
