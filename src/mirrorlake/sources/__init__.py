"""Sources: where changes come from. One package each, behind the contract in `base`.

`config/sources.py` lists what else a new source adds.
"""
