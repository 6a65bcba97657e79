"""Token ids of a text by the reference tokenizers, from the vocabulary that a GGUF file holds."""

import os

import gguf
import transformers


class Tokens:
    """The file's tokenizer."""

    def __init__(self, path):
        folder, name = os.path.split(os.path.abspath(path))
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
        fields = gguf.GGUFReader(path).fields
        wants_bos = "tokenizer.ggml.add_bos_token" in fields and fields["tokenizer.ggml.add_bos_token"].contents()
        self.bos = [fields["tokenizer.ggml.bos_token_id"].contents()] if wants_bos else []

    def encode(self, text, bos=True):
        """Ids of `text`, after the BOS token if the model wants one."""
        return (self.bos if bos else []) + self.tokenizer(text, add_special_tokens=False).input_ids
