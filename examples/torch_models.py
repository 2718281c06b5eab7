"""The models of docs/benchmarks.md, with random weights: `smelt bench examples/torch_models.py:make_mlp`.

BERT and GPT-2 are Hugging Face's (`pip install transformers`), of two layers and otherwise as they come; so all models
but the first have dropout while they are trained.
"""

import torch
from torch import nn

Model = tuple[nn.Module, tuple[torch.Tensor, ...]]


def make_mlp() -> Model:
    layers = [layer for _ in range(4) for layer in (nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.GELU())]
    return nn.Sequential(*layers), (torch.randn(512, 1024),)


def make_encoder() -> Model:
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), (torch.randn(8, 128, 256),)


def make_bert() -> Model:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(num_hidden_layers=2)), (torch.randint(0, 30522, (4, 128)),)


def make_gpt2() -> Model:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(n_layer=2, use_cache=False)), (torch.randint(0, 50257, (4, 128)),)
