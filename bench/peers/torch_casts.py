"""A peer of `sumpter bench kernels`: torch's casts between float32 and bfloat16 or float16, on one thread.

Reads lines "encode-bf16-copy-COUNT REPEATS" (or decode, f16, to) and answers each with the seconds of all repeats:
`copy` is destination.copy_(source), `to` is source.to(type), which takes memory of its own.
"""

import sys
import time

import torch

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def make_cast(request):
    """A function that casts once, as the request says."""
    direction, name, way, count = request.split("-")
    floats = (torch.arange(int(count)) % 251).float() / 64 - 2
    halves = floats.to(TYPES[name])
    source, destination = (floats, halves) if direction == "encode" else (halves, floats)
    if way == "copy":
        return lambda: destination.copy_(source)
    return lambda: source.to(destination.dtype)


def main():
    torch.set_num_threads(1)
    casts = {}
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            request, repeats = line.split()
            if request not in casts:
                casts[request] = make_cast(request)
            cast = casts[request]
            start = time.perf_counter()
            for _ in range(int(repeats)):
                cast()
            print(time.perf_counter() - start, flush=True)
        except (ValueError, KeyError, RuntimeError) as error:
            print(f"error {error}", flush=True)


if __name__ == "__main__":
    main()
