"""Which detector finds the rare class, on real and simulated graphs, and how right its P(rare) is."""
