"""Batches of the samples that trireme_samples printed, for the peers of BERT and T5."""
import json

NO_LABEL = -100  # as Hugging Face's losses leave out


def batches_of(torch, path, micro, tensors_of):
    """tensors_of({field: (samples, elements)}) of each `micro` samples of the file."""
    with open(path, encoding="utf-8") as file:
        samples = [json.loads(line) for line in file]
    if len(samples) < micro:
        raise SystemExit(f"'{path}' has {len(samples)} samples, a batch has {micro}")
    batches = []
    for first in range(0, len(samples) - micro + 1, micro):
        part = samples[first:first + micro]
        batches.append(tensors_of({name: torch.tensor([sample[name] for sample in part])
                                   for name in part[0]}))
    return batches


def real_positions(torch, lengths, sequence):
    """(samples, sequence): 1 where a position is no padding."""
    return (torch.arange(sequence) < lengths).long()
