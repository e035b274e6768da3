"""Leave-one-out models without retraining: what every node's logits would be without each labelled node."""
