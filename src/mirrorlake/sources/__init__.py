"""Sources: where changes come from. One package each, behind the contract in `base`."""
