"""Copies a GGUF file and gives the copy rope scaling, for comparisons beyond 4,000 positions.

    python variant.py IN.gguf OUT.gguf --linear 4
    python variant.py IN.gguf OUT.gguf --llama3 8,1,4,2048      factor, low, high, original context

--llama3 stores llama3's scaling as files of that family hold it: one divisor a frequency in `rope_freqs.weight`.
"""

import argparse
import math

import gguf
import numpy as np


def llama3_divisors(base, rot, factor, low, high, original):
    """What each frequency is divided by: 1 for short wavelengths, `factor` for long ones, smooth between (Llama 3.1)."""
    out = []
    for i in range(0, rot, 2):
        wavelength = 2 * math.pi * base ** (i / rot)
        if wavelength < original / high:
            out.append(1.0)
        elif wavelength > original / low:
            out.append(factor)
        else:
            smooth = (original / wavelength - low) / (high - low)
            out.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(out, np.float32)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("target")
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--linear", type=float)
    kind.add_argument("--llama3", type=lambda s: tuple(map(float, s.split(","))))
    args = parser.parse_args()
    reader = gguf.GGUFReader(args.source)
    arch = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(args.target, arch)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture" or ".rope.scaling." in name:
            continue
        sub = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), field.types[0], sub)
    if args.linear:
        writer.add_string(f"{arch}.rope.scaling.type", "linear")
        writer.add_float32(f"{arch}.rope.scaling.factor", args.linear)
    for t in reader.tensors:
        if t.name != "rope_freqs.weight":
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    if args.llama3:
        base = reader.fields[f"{arch}.rope.freq_base"].contents()
        rot = reader.fields[f"{arch}.rope.dimension_count"].contents()
        writer.add_tensor("rope_freqs.weight", llama3_divisors(base, rot, *args.llama3))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
