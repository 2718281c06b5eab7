"""torch.compile(backend="smelt") against eager, over PyTorch's own databases of ops and modules."""
