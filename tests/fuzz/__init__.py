"""Random programs drawn from the registry's schemas, checked against PyTorch eager."""
