#!/usr/bin/env python3
"""One BERT training step of Hugging Face's model in PyTorch: the peer of cases bert_*.

BertForPreTraining with both heads, scaled_dot_product_attention, mean losses of masked tokens
and of pairs, global-norm clip, fused AdamW with decay on matrices only, as gpt2_step.py, which
has its options and output. Batches are those that trireme_samples printed. The model makes
logits of all positions; with --gathered of the masked ones alone, which is what Trireme does
and what a careful user would write.
In fp32, with --autocast in bf16 over fp32 weights, with --pure in bf16 throughout: weights and
the optimizer's state, too.

    python bert_step.py --samples samples.jsonl --micro 8 --sequence 128 --compile --steps 5
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from samples import NO_LABEL, add_peer_arguments, real_positions, run_peer  # noqa: E402


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_peer_arguments(parser)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=30522)
    parser.add_argument("--gathered", action="store_true",
                        help="logits of masked positions alone")
    return parser.parse_args()


def build_model(torch, arguments):
    """A module: batch -> loss of both objectives."""
    from transformers import BertConfig, BertForPreTraining
    dropout = arguments.dropout
    bert = BertForPreTraining(BertConfig(
        vocab_size=arguments.vocab, hidden_size=arguments.hidden,
        num_hidden_layers=arguments.layers, num_attention_heads=arguments.heads,
        intermediate_size=4 * arguments.hidden, max_position_embeddings=arguments.sequence,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        attn_implementation=arguments.attention))

    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = bert

        def forward(self, batch):
            inputs = {name: batch[name]
                      for name in ("input_ids", "attention_mask", "token_type_ids")}
            if not arguments.gathered:
                return self.bert(**inputs, labels=batch["labels"],
                                 next_sentence_label=batch["pairs"]).loss
            hidden, pooled = self.bert.bert(**inputs, return_dict=False)
            rows = hidden.flatten(0, 1)[batch["masked_rows"]]
            words, pairs = self.bert.cls(rows, pooled)
            loss = torch.nn.functional.cross_entropy
            return loss(words, batch["masked_labels"]) + loss(pairs, batch["pairs"])

    return Loss()


def tensors_of(torch, fields):
    """What Hugging Face's model takes of Trireme's fields, and what --gathered does."""
    tokens, positions = fields["tokens"], fields["masked_positions"]
    samples, sequence = tokens.shape
    is_masked = fields["masked_weights"] > 0
    places = positions.clamp(min=0)
    masked_labels = fields["masked_labels"].where(is_masked, torch.tensor(NO_LABEL))
    labels = torch.full_like(tokens, NO_LABEL)
    sample_of, number = is_masked.nonzero(as_tuple=True)
    labels[sample_of, positions[sample_of, number]] = masked_labels[sample_of, number]
    first_rows = sequence * torch.arange(samples).unsqueeze(1)
    has_pair = fields["pair_weights"] > 0
    return {"input_ids": tokens, "token_type_ids": fields["token_types"],
            "attention_mask": real_positions(torch, fields["lengths"], sequence),
            "labels": labels, "masked_rows": (first_rows + places).flatten(),
            "masked_labels": masked_labels.flatten(),
            "pairs": fields["pair_labels"].where(has_pair, torch.tensor(NO_LABEL)).flatten()}


if __name__ == "__main__":
    run_peer(parse_arguments(), build_model, tensors_of)
