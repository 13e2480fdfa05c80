#!/usr/bin/env python3
"""One BERT or T5 training step of Hugging Face's model in PyTorch on a GPU: the peer of
perf/gpu_suite kinds.

The models and batches of bert_step.py and t5_step.py, run as gpt2_step_gpu.py runs GPT-2:
compiled, bf16 under autocast, fused AdamW, a vocabulary padded to a multiple of 128. A line "N"
on stdin runs N measured steps; JSON lines are printed as gpt2_step.py does.

    python hugging_face_gpu.py bert --samples samples.jsonl --micro 16 --sequence 512 --steps 5
"""
import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import bert_step  # noqa: E402
import t5_step  # noqa: E402
from gpt2_step_gpu import add_arguments, load_torch, run_steps  # noqa: E402
from samples import batches_of  # noqa: E402

KINDS = {"bert": bert_step, "t5": t5_step}
VOCABULARIES = {"bert": 30592, "t5": 32128}  # padded


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--samples", required=True, help="what trireme_samples printed")
    add_arguments(parser, sequence=512)
    parser.add_argument("--head-size", type=int, default=64)
    arguments = parser.parse_args()
    arguments.vocab = VOCABULARIES[arguments.kind]
    arguments.optimizer, arguments.attention, arguments.gathered = "fused", "sdpa", False
    return arguments


def main():
    arguments = parse_arguments()
    torch = load_torch()
    kind = KINDS[arguments.kind]
    with torch.device("cuda"):
        model = kind.build_model(torch, arguments).train()
    batches = [{name: tensor.cuda() for name, tensor in batch.items()} for batch in batches_of(
        torch, arguments.samples, arguments.micro, lambda fields: kind.tensors_of(torch, fields))]
    run_steps(torch, arguments, model, torch.compile(model), batches)


if __name__ == "__main__":
    main()
