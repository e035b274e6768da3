"""What bench_explain_peers.py is made of: planted motifs, the judge of an order of edges, and the peers."""
