#!/usr/bin/env python3
"""trireme generate against Hugging Face's generate(), in turns: GPT-2 124M, greedy.

    perf/generation.py --trireme build/release/bin/trireme --python PYTHON_WITH_TRANSFORMERS \\
                       --rounds 7 --json report.json --at-least 2.0

Both have the same random weights, made by the peer and converted. For each type and number of
texts, rounds alternate between the two, every other one backwards; medians and their ratio are
printed, and beside them what reading the weights takes at the measured bandwidth of reads, of
which Trireme's share is given. Prompts have 16 tokens, texts 256 more. In fp32 the tokens of
both are compared.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TYPES = {"fp32": "float32", "bf16": "bfloat16"}
WIDTH = {"fp32": 4, "bf16": 2}
PROMPT = 16
STEP_WEIGHTS = 123.7e6  # all but the table of positions


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trireme", required=True)
    parser.add_argument("--python", required=True, help="one with torch and transformers")
    parser.add_argument("--types", nargs="+", choices=sorted(TYPES), default=["bf16", "fp32"])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--micro", help="trireme_micro, for the memory's bandwidth")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--at-least", type=float, help="fail below this ratio")
    return parser.parse_args()


def prompts(batch):
    return [[(17 * row + 31 * i + 5) % 50257 for i in range(PROMPT)] for row in range(batch)]


class Peer:
    """peers/generate.py, which generates once for each line that it gets."""

    def __init__(self, arguments, model, of_type, batch):
        self.process = subprocess.Popen(
            [arguments.python, HERE / "peers" / "generate.py", "--model", model, "--type",
             TYPES[of_type], "--threads", str(arguments.threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.prompts = prompts(batch)

    def turn(self, tokens):
        asked = {"prompts": self.prompts, "tokens": tokens}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["seconds"], answer["tokens"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def trireme_turn(arguments, checkpoint, of_type, batch, scratch):
    """Seconds of prompts and new tokens, as the program measures them, and the tokens."""
    out = scratch / "generation.json"
    command = [arguments.trireme, "generate", "--checkpoint", checkpoint, "--greedy",
               "--max-tokens", arguments.tokens, "--set", f"precision.compute={of_type}",
               "--format", "jsonl", "--out", scratch / "texts.jsonl", "--json", out]
    for ids in prompts(batch):
        command += ["--prompt-ids", " ".join(map(str, ids))]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": str(arguments.threads)})
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    report = json.loads(out.read_text())
    out.unlink()
    (scratch / "texts.jsonl").unlink()
    seconds = report["seconds"] + report["prompt_seconds"]
    return seconds, report["seconds"], [result["ids"] for result in report["results"]]


def bandwidth(arguments):
    """Bytes read per second, as trireme_micro measures."""
    if not arguments.micro:
        return None
    # What the program says of the machine comes with its first benchmark.
    done = subprocess.run([arguments.micro, "--benchmark_filter=fill_normal"],
                          capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": str(arguments.threads)})
    found = re.search(r"memory read: ([0-9.]+) GB/s", done.stdout + done.stderr)
    if not found:
        raise SystemExit(f"{arguments.micro} does not say how fast memory is read")
    return float(found.group(1)) * 1e9


def measure(arguments, model, checkpoint, of_type, batch, scratch):
    peer = Peer(arguments, model, of_type, batch)
    ours, theirs, steps = [], [], []
    peer.turn(16)  # the first is slower
    for i in range(arguments.rounds):
        for who in ("ours", "theirs") if i % 2 == 0 else ("theirs", "ours"):
            if who == "ours":
                total, new, tokens = trireme_turn(arguments, checkpoint, of_type, batch, scratch)
                ours.append(total)
                steps.append(new / arguments.tokens)
            else:
                total, expected = peer.turn(arguments.tokens)
                theirs.append(total)
    peer.stop()
    same = sum(a == b for a, b in zip(tokens, expected))
    return {"type": of_type, "texts": batch, "seconds": statistics.median(ours),
            "peer_seconds": statistics.median(theirs),
            "ratio": statistics.median(b / a for a, b in zip(ours, theirs)),
            "ratios": [b / a for a, b in zip(ours, theirs)],
            "step_seconds": statistics.median(steps), "same_texts": same}


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as directory:
        scratch = pathlib.Path(directory)
        model, checkpoint = scratch / "model", scratch / "checkpoint"
        subprocess.run([arguments.python, HERE / "peers" / "generate.py", "--make", model],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run([arguments.trireme, "convert", model, checkpoint], check=True,
                       stdout=subprocess.DEVNULL)
        speed = bandwidth(arguments)
        figures = []
        for of_type in arguments.types:
            for batch in arguments.batches:
                figure = measure(arguments, model, checkpoint, of_type, batch, scratch)
                text = (f"{of_type} {batch} texts: {figure['seconds']:.2f} s, peer "
                        f"{figure['peer_seconds']:.2f} s, ratio {figure['ratio']:.2f} "
                        f"({min(figure['ratios']):.2f} to {max(figure['ratios']):.2f}); a step "
                        f"{1e3 * figure['step_seconds']:.2f} ms, same tokens in "
                        f"{figure['same_texts']} of {batch} texts")
                if speed:
                    bound = STEP_WEIGHTS * WIDTH[of_type] / speed
                    figure["share_of_bound"] = bound / figure["step_seconds"]
                    text += (f"; {100 * figure['share_of_bound']:.0f} % of reading the weights "
                             f"at {speed / 1e9:.1f} GB/s")
                print(text, flush=True)
                figures.append(figure)
    if arguments.json:
        pathlib.Path(arguments.json).write_text(json.dumps(figures, indent=2) + "\n")
    if arguments.at_least and min(f["ratio"] for f in figures) < arguments.at_least:
        sys.exit(f"a ratio is below {arguments.at_least}")


if __name__ == "__main__":
    main()
