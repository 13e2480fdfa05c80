#!/usr/bin/env python3
"""One T5 training step of Hugging Face's model in PyTorch: the peer of cases t5_*.

T5ForConditionalGeneration with scaled_dot_product_attention, which takes the relative
position bias as its mask, mean loss of the labels, global-norm clip, fused AdamW with decay on
matrices only, as gpt2_step.py, which has its options and output. Batches are those that
trireme_samples printed. Where all sources are full the model gets no mask of them.
In fp32, with --autocast in bf16 over fp32 weights, with --pure in bf16 throughout: weights and
the optimizer's state, too.

    python t5_step.py --samples samples.jsonl --micro 8 --sequence 512 --compile --steps 5
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from samples import NO_LABEL, add_peer_arguments, real_positions, run_peer  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_peer_arguments(parser)
    parser.add_argument("--layers", type=int, default=6, help="of encoder and decoder each")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=32128)
    return parser.parse_args()


def build_model(torch, arguments):
    """A module: batch -> loss."""
    from transformers import T5Config, T5ForConditionalGeneration
    t5 = T5ForConditionalGeneration(T5Config(
        vocab_size=arguments.vocab, d_model=arguments.hidden, d_kv=arguments.head_size,
        d_ff=4 * arguments.hidden, num_layers=arguments.layers,
        num_decoder_layers=arguments.layers, num_heads=arguments.heads,
        dropout_rate=arguments.dropout, decoder_start_token_id=0, use_cache=False,
        attn_implementation=arguments.attention))

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.t5 = t5

        def forward(self, batch):
            return self.t5(**batch, use_cache=False).loss

    return Loss()


def tensors_of(torch, fields):
    """What Hugging Face's model takes, of Trireme's fields."""
    source, counts = fields["source"], fields["loss_mask"] > 0
    batch = {"input_ids": source, "decoder_input_ids": fields["target"],
             "labels": fields["labels"].where(counts, torch.tensor(NO_LABEL))}
    sequence = source.shape[1]
    if int(fields["source_lengths"].min()) < sequence:
        batch["attention_mask"] = real_positions(torch, fields["source_lengths"], sequence)
    return batch


if __name__ == "__main__":
    run_peer(parse_arguments(), build_model, tensors_of)
