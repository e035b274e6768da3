"""The validated graph and what is read of it: edges, splits, features, propagation."""
