"""How well fraud is found in tables of transactions: ours and LightGBM on the same raw tables and split."""
