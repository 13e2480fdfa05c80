"""What the peers of BERT and T5 share: batches of the samples that trireme_samples printed,
and the steps on them."""
import json

from gpt2_step import add_step_arguments, build_optimizer, load_torch, peak_bytes, run_steps

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


def add_peer_arguments(parser):
    add_step_arguments(parser)
    parser.add_argument("--samples", required=True, help="what trireme_samples printed")
    parser.add_argument("--attention", default="sdpa", help="sdpa or eager")
    parser.add_argument("--pure", action="store_true", help="all in bf16, without autocast")


def run_peer(arguments, build_model, tensors_of):
    """Steps of build_model(torch, arguments), which makes of a batch its loss; a batch is what
    tensors_of(torch, fields) takes of Trireme's fields."""
    torch = load_torch(arguments)
    import transformers  # noqa: F401 its memory is none of the model's
    before_model = peak_bytes()
    model = build_model(torch, arguments)
    if arguments.pure:
        model = model.bfloat16()
    optimizer = build_optimizer(torch, model, arguments)
    batches = batches_of(torch, arguments.samples, arguments.micro,
                         lambda fields: tensors_of(torch, fields))
    run_steps(torch, arguments, model, optimizer, batches, before_model)
