"""Shows what a safetensors file holds: show_weights.py FILE"""

import sys

from safetensors.numpy import load_file


def main(path):
    tensors = load_file(path)
    width = max(len(name) for name in tensors)
    for name, tensor in tensors.items():
        print(f"  {name:{width}}  {tensor.dtype}  {' x '.join(map(str, tensor.shape))}")
    total = sum(tensor.size for tensor in tensors.values())
    print(f"{path}: safetensors loads it; {len(tensors)} tensors, {total:,} parameters.")


if __name__ == "__main__":
    main(sys.argv[1])
