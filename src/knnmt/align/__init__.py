"""Word alignment: which source token each target token translates.

bitext.py the data · fastalign.py the model: train, align, save · links.py symmetrise both directions, and cover every
target token · pharaoh.py links from other tools · kernels.py the compiled loops · settings.py its settings.
"""
