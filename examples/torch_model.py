"""A PyTorch model through smelt. `smelt explain examples/torch_model.py:make_model` shows its kernels."""

import torch
from torch import nn


def make_model() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A module and example inputs, which is what the smelt command takes."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(2, 16, 64),)


def main() -> None:
    import smelt.torch

    model, inputs = make_model()
    compiled = torch.compile(model, backend="smelt")
    loss = compiled(*inputs).square().mean()
    loss.backward()
    print(f"loss {loss.item():.6f}, eager {model(*inputs).square().mean().item():.6f}")
    print(smelt.torch.report())


if __name__ == "__main__":
    main()
