"""Small random actors for tests; the imports stand in the functions so that core tests need numpy alone."""

from __future__ import annotations

import pytest

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}{% if "
    "add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_tokenizer():
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|pad|>")
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    fast.chat_template = TEMPLATE
    return fast


def make_folder(path, kind, **other):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    tokenizer = byte_tokenizer()
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.3,
        "tie_word_embeddings": True,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
        **other,
    }
    torch.manual_seed(0)
    model = (
        Qwen2ForCausalLM(Qwen2Config(**shape)) if kind == "qwen2" else LlamaForCausalLM(LlamaConfig(**shape))
    )
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="session")
def tiny_actor_folder(tmp_path_factory):
    """A random Qwen2 of three layers with a byte-level ChatML tokenizer."""
    return make_folder(tmp_path_factory.mktemp("qwen2"), "qwen2")


@pytest.fixture(scope="session")
def wide_head_folder(tmp_path_factory):
    """A random Qwen2 with heads of 64, which every attention kernel of vLLM can do."""
    shape = {"hidden_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "initializer_range": 0.1}
    return make_folder(tmp_path_factory.mktemp("wide"), "qwen2", **shape)


@pytest.fixture(scope="session")
def tiny_llama_folder(tmp_path_factory):
    """The same shape as a Llama."""
    return make_folder(tmp_path_factory.mktemp("llama"), "llama")
