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
from gpt2_step import (add_step_arguments, build_optimizer, load_torch,  # noqa: E402
                       peak_bytes, run_steps)
from samples import NO_LABEL, batches_of, real_positions  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_step_arguments(parser)
    parser.add_argument("--samples", required=True, help="what trireme_samples printed")
    parser.add_argument("--layers", type=int, default=6, help="of encoder and decoder each")
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-size", type=int, default=64)
    parser.add_argument("--vocab", type=int, default=32128)
    parser.add_argument("--attention", default="sdpa", help="sdpa or eager")
    parser.add_argument("--pure", action="store_true", help="all in bf16, without autocast")
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

    model = Loss()
    return model.bfloat16() if arguments.pure else model


def tensors_of(torch, fields):
    """What Hugging Face's model takes, of Trireme's fields."""
    source, counts = fields["source"], fields["loss_mask"] > 0
    batch = {"input_ids": source, "decoder_input_ids": fields["target"],
             "labels": fields["labels"].where(counts, torch.tensor(NO_LABEL))}
    sequence = source.shape[1]
    if int(fields["source_lengths"].min()) < sequence:
        batch["attention_mask"] = real_positions(torch, fields["source_lengths"], sequence)
    return batch


def main():
    arguments = parse_arguments()
    torch = load_torch(arguments)
    import transformers  # noqa: F401 its memory is none of the model's
    before_model = peak_bytes()
    model = build_model(torch, arguments)
    optimizer = build_optimizer(torch, model, arguments)
    batches = batches_of(torch, arguments.samples, arguments.micro,
                         lambda fields: tensors_of(torch, fields))
    run_steps(torch, arguments, model, optimizer, batches, before_model)


if __name__ == "__main__":
    main()
