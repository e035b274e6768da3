"""What bench_audit.py is made of: labels made wrong on purpose, their training, and the peer's rule."""
