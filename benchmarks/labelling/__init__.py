"""What bench_next_label.py is made of: rounds of labels that are asked for, and the rules that ask."""
