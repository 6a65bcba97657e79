"""Writes a GGUF file in another type, with llama.cpp's own code: the same file for both programs.

    python requantize.py IN.gguf OUT.gguf Q8_0        Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K_M, Q5_K_M, Q6_K, F16
"""

import ctypes
import sys

import llama_cpp


def main():
    if len(sys.argv) != 4:
        raise SystemExit(__doc__)
    source, target, kind = sys.argv[1:]
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{kind}")
    params.allow_requantize = True  # the input is quantised already: good enough for speeds, not for quality
    if llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(params)):
        raise SystemExit(f"llama.cpp cannot write {target}")


if __name__ == "__main__":
    main()
