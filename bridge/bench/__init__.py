"""How fast a training step of a model is through the bridge, beside eager and `torch.compile`."""
