"""Models of Hugging Face's transformers from small random configurations: nothing is downloaded.

python -m torch_models bert llama     compare these with eager, and show what fell back
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import smelt.torch
import torch

Inputs = dict[str, Any]
Tensors = dict[str, torch.Tensor]

TEXT = {
    "vocab_size": 128,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
DROPOUT = (
    "dropout", "attention_dropout", "activation_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob",
    "layerdrop", "drop_prob", "dropout_prob",
)  # fmt: skip
CONVOLUTION = {"aten.convolution", "aten.convolution_backward"}


def words(rows: int = 2, length: int = 12) -> torch.Tensor:
    return torch.randint(5, 120, (rows, length))


def image() -> Inputs:
    return {"pixel_values": torch.randn(2, 3, 32, 32), "labels": torch.randint(0, 5, (2,))}


def text() -> Inputs:
    return {"input_ids": words(), "labels": words()}


def _make(name: str) -> tuple[Any, Inputs]:
    import transformers as t

    if name == "bert":
        return t.BertForMaskedLM(t.BertConfig(**TEXT)), text()
    if name == "distilbert":
        return t.DistilBertForMaskedLM(
            t.DistilBertConfig(vocab_size=128, dim=32, n_layers=2, n_heads=4, hidden_dim=64, max_position_embeddings=64)
        ), text()
    if name == "gpt2":
        sizes = {"vocab_size": 128, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
        return t.GPT2LMHeadModel(t.GPT2Config(**sizes, bos_token_id=1, eos_token_id=2)), text()
    if name == "llama":
        return t.LlamaForCausalLM(t.LlamaConfig(**TEXT, num_key_value_heads=2)), text()
    if name == "t5":
        sizes = {"vocab_size": 128, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
        return t.T5ForConditionalGeneration(t.T5Config(**sizes, decoder_start_token_id=0)), text()
    if name == "mamba":
        return t.MambaForCausalLM(
            t.MambaConfig(vocab_size=128, hidden_size=32, num_hidden_layers=2, state_size=4)
        ), text()
    if name == "vit":
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        return t.ViTForImageClassification(t.ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=5)), image()
    if name == "convnext":
        config = t.ConvNextConfig(num_stages=2, hidden_sizes=[8, 16], depths=[1, 1], num_labels=5)
        return t.ConvNextForImageClassification(config), image()
    if name == "resnet":
        config = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5)
        return t.ResNetForImageClassification(config), image()
    if name == "swin":
        config = t.SwinConfig(
            image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=5
        )
        return t.SwinForImageClassification(config), image()
    if name == "whisper":
        config = t.WhisperConfig(
            vocab_size=128, d_model=32, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, num_mel_bins=8, max_source_positions=20,
            max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
        )  # fmt: skip
        return t.WhisperForConditionalGeneration(config), {
            "input_features": torch.randn(2, 8, 40), "labels": words(2, 6)
        }  # fmt: skip
    if name == "clip":
        part = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64}
        language = part | {
            "vocab_size": 128, "max_position_embeddings": 32, "eos_token_id": 127, "bos_token_id": 1, "pad_token_id": 0
        }  # fmt: skip
        config = t.CLIPConfig(
            text_config=language, vision_config=part | {"image_size": 32, "patch_size": 8}, projection_dim=16
        )
        return t.CLIPModel(config), {"input_ids": words(), "pixel_values": image()["pixel_values"], "return_loss": True}
    raise KeyError(name)


# What may fall back, by model.
MODELS: dict[str, set[str]] = {
    **dict.fromkeys(("bert", "distilbert", "gpt2", "llama", "t5", "vit"), set()),
    **dict.fromkeys(("convnext", "resnet", "swin", "whisper", "clip", "mamba"), CONVOLUTION),
}


def make(name: str) -> tuple[Any, Inputs]:
    """A model without randomness in its calls, and inputs."""
    torch.manual_seed(0)
    model, inputs = _make(name)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for attribute in DROPOUT:
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)
    return model, inputs


def results(call: Callable[..., Any], inputs: Inputs) -> Tensors:
    found = call(**inputs)
    return {name: found[name] for name in found if isinstance(found[name], torch.Tensor)}


def gradients(model: Any, call: Callable[..., Any], inputs: Inputs) -> Tensors:
    model.zero_grad()
    loss = call(**inputs).loss
    loss.backward()
    found = {name: param.grad.clone() for name, param in model.named_parameters() if param.grad is not None}
    return {"loss": loss.detach(), **found}


def closest(got: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor | None) -> float:
    """The largest error, in parts of the largest number; beside eager's own error if that is known."""
    size = max(expected.abs().max().item(), 1e-3)  # gradients that are zero but for rounding have no size
    error = (got - expected).abs().max().item() / size
    if exact is not None and error > 1e-4:
        errors = [(item.double() - exact).abs().max().item() / size for item in (got, expected)]
        error = max(errors[0] - errors[1], 0.0)
    return error


def worst(got: Tensors, expected: Tensors, exact: Tensors | None) -> float:
    assert got.keys() == expected.keys()
    return max(closest(got[key], expected[key], exact and exact[key]) for key in expected)


def excess(got: Tensors, expected: Tensors, exact: Tensors) -> float:
    """How much larger than eager's the error of all numbers together is: 0.1 is a tenth. For narrow types, in which
    single numbers are off by chance."""
    assert got.keys() == expected.keys()
    mine, eagers = (
        sum((item[key].double() - exact[key]).square().sum().item() for key in exact) for item in (got, expected)
    )
    return max((mine / eagers) ** 0.5 - 1, 0.0)


def in_doubles(model: Any, inputs: Inputs) -> tuple[Any, Inputs]:
    """What float64 makes of it, after the numbers were rounded to their type."""
    return copy.deepcopy(model).double(), as_type(inputs, torch.float64)


def as_type(inputs: Inputs, dtype: torch.dtype) -> Inputs:
    return {
        key: item.to(dtype) if isinstance(item, torch.Tensor) and item.is_floating_point() else item
        for key, item in inputs.items()
    }


def compare(name: str) -> tuple[float, dict[str, int]]:
    """The largest error of inference and of a training step, and what fell back."""
    model, inputs = make(name)
    compiled = torch.compile(model, backend="smelt")
    smelt.torch.reset_stats()
    model.eval()
    with torch.no_grad():
        error = worst(results(compiled, inputs), results(model, inputs), None)
    model.train()
    wide, doubles = in_doubles(model, inputs)
    exact = gradients(wide, wide, doubles)
    error = max(error, worst(gradients(model, compiled, inputs), gradients(model, model, inputs), exact))
    return error, smelt.torch.stats()["fallback_names"]


def compare_lengths(name: str, dtype: torch.dtype, train: bool, lengths: Sequence[int]) -> tuple[float, dict[str, Any]]:
    """Texts of these lengths with dynamic=True: the largest error (narrow types: see `excess`), and the receipt."""
    model, inputs = make(name)
    model = model.to(dtype).train(train)
    compiled = torch.compile(model, backend="smelt", dynamic=True)
    smelt.torch.reset_stats()
    measure = worst if dtype is torch.float32 else excess
    errors = []
    for length in lengths:
        inputs = {key: words(2, length) for key in inputs}
        wide, _ = in_doubles(model, inputs)
        if train:
            found = [gradients(*item, inputs) for item in ((model, compiled), (model, model), (wide, wide))]
        else:
            with torch.no_grad():
                found = [results(item, inputs) for item in (compiled, model, wide)]
        errors.append(measure(*found))
    return max(errors), smelt.torch.stats()


def compare_written(name: str) -> tuple[bool, dict[str, Any]]:
    """Texts that a model goes on writing word by word, from two lengths: whether they are eager's, and the receipt."""
    model, _ = make(name)
    model.eval()
    texts = [words(2, length) for length in (7, 5)]
    write = functools.partial(model.generate, max_new_tokens=8, do_sample=False, pad_token_id=0)
    expected = [write(text) for text in texts]
    model.forward = torch.compile(model.forward, backend="smelt", dynamic=True)
    smelt.torch.reset_stats()
    found = [write(text) for text in texts]
    return all(map(torch.equal, found, expected)), smelt.torch.stats()


def compare_narrow(name: str) -> tuple[float, dict[str, int]]:
    """Inference and a training step in bf16: by how much the error is larger than eager's, and what fell back."""
    model, inputs = make(name)
    model, inputs = model.bfloat16(), as_type(inputs, torch.bfloat16)
    compiled = torch.compile(model, backend="smelt")
    smelt.torch.reset_stats()
    wide, doubles = in_doubles(model, inputs)
    with torch.no_grad():
        error = excess(results(compiled, inputs), results(model, inputs), results(wide, doubles))
    exact = gradients(wide, wide, doubles)
    error = max(error, excess(gradients(model, compiled, inputs), gradients(model, model, inputs), exact))
    return error, smelt.torch.stats()["fallback_names"]


if __name__ == "__main__":
    for chosen in sys.argv[1:] or MODELS:
        torch._dynamo.reset()
        print(chosen, *compare(chosen), flush=True)
