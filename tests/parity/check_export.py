#!/usr/bin/env python3
"""Do two Hugging Face directories hold the same model? Loads both with transformers, as a
user would, and compares all that both compute bit by bit, and the tokenizers where both have
one.

Run by hand where torch and transformers are installed, on what `trireme convert` wrote:

    trireme convert MODEL CKPT && trireme convert CKPT EXPORTED
    python tests/parity/check_export.py MODEL EXPORTED
"""
import pathlib
import sys

import torch
import transformers

TEXT = "In the beginning, was the Word:  größer 水と火 \U0001f600\n\n\t x=1; don't<|endoftext|>end"
TOKENIZERS = ("tokenizer.json", "vocab.json", "vocab.txt", "spiece.model")


def load(directory):
    """The model, as the class that its config.json names, with every weight in its place."""
    config = transformers.AutoConfig.from_pretrained(directory)
    kind = getattr(transformers, config.architectures[0])
    model, info = kind.from_pretrained(directory, output_loading_info=True,
                                       dtype=torch.float32, attn_implementation="eager")
    for keys in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[keys], f"{directory}: {keys} {info[keys]}"
    return model.eval()


def inputs_of(model):
    """Two texts of random ids, the second shorter, in the names of the model's kind."""
    generator = torch.Generator().manual_seed(1)
    config = model.config
    most = getattr(config, "max_position_embeddings", None) or getattr(
        config, "n_positions", 64)
    tokens = torch.randint(0, 1 << 30, (2, min(64, most)), generator=generator)
    tokens %= config.vocab_size
    inputs = {"input_ids": tokens}
    if config.model_type != "gpt2":
        inputs["attention_mask"] = torch.ones_like(tokens)
        inputs["attention_mask"][1, tokens.shape[1] // 2:] = 0
    if config.model_type in ("bert", "megatron-bert"):
        inputs["token_type_ids"] = torch.zeros_like(tokens)
        inputs["token_type_ids"][:, tokens.shape[1] // 3:] = min(1, config.type_vocab_size - 1)
    if config.model_type == "t5":
        inputs["decoder_input_ids"] = tokens.flip(1)[:, :11]
    return inputs


def outputs_of(model, inputs):
    """{name: tensor} of what the model computes; the last hidden states always."""
    with torch.no_grad():
        result = model(**inputs, output_hidden_states=True)
    outputs = {name: value for name, value in result.items() if torch.is_tensor(value)}
    for name, value in result.items():
        if name.endswith("hidden_states") and value is not None:
            outputs[name] = value[-1]
    if "last_hidden_state" in outputs:  # BertModel's word for it
        outputs["hidden_states"] = outputs.pop("last_hidden_state")
    return outputs


def compare(first, second):
    """The names of all that was compared, with its shapes."""
    one, two = load(first), load(second)
    inputs = inputs_of(one)
    a, b = outputs_of(one, inputs), outputs_of(two, inputs)
    shared = [name for name in a if name in b]
    assert shared, f"nothing in common: {list(a)} and {list(b)}"
    for name in shared:
        assert a[name].shape == b[name].shape and torch.equal(a[name], b[name]), \
            f"{name}: they differ"
    return {name: tuple(a[name].shape) for name in shared}


def has_tokenizer(directory):
    return any((pathlib.Path(directory) / name).exists() for name in TOKENIZERS)


def main():
    first, second = sys.argv[1:3]
    for name, shape in compare(first, second).items():
        print(f"{name} {shape}: identical")
    if has_tokenizer(first) and has_tokenizer(second):
        one, two = (transformers.AutoTokenizer.from_pretrained(d) for d in (first, second))
        assert one(TEXT)["input_ids"] == two(TEXT)["input_ids"], "the tokenizers differ"
        assert one.eos_token_id == two.eos_token_id, "the end-of-text tokens differ"
        print(f"tokenizers: the same {len(one(TEXT)['input_ids'])} ids, "
              f"end of text {one.eos_token_id}")


if __name__ == "__main__":
    main()
