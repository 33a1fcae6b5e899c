"""Mixture-of-experts language models that are bigger than memory: libmoeflux from Python.

    import moeflux

    with moeflux.Model("models/pebble") as model:
        print(model.chat("What is the capital of France?").content)
        for piece in model.stream("Tell me a story.").text:
            print(piece, end="", flush=True)

Engine and Model open checkpoints; Model.chat, stream, complete and batch answer; Sequence feeds
tokens and shows logits; Text tokenises and renders; Sampler and Constraint pick tokens.  Objects
are closed by `with`, close() or the collector, in any order.  Failures of the library are
exceptions of moeflux.errors with its sentence; Ctrl-C and exceptions in callbacks end the call and
leave everything usable."""
from ._library import version as library_version
from .engine import Engine, Experts, Model, find
from .errors import (ArgumentError, BufferSizeError, BusyError, CancelledError, CheckpointError,
                     ClosedError, ContextFullError, DeviceError, Error, FileError, FormatError,
                     GrammarError, LibraryError, MismatchError, NotFiniteError, OutOfMemoryError,
                     PoolFullError, TemplateError, TruncateError, UnsupportedError)
from .requests import (Answer, CallArguments, CallBegin, CallDropped, CallEnd, Content, Ended, Event,
                       Options, Progress, Reasoning, Request, Stream, Token, ToolCall)
from .sampling import Constraint, Form, Sampler, Sampling
from .sequence import Resumed, Routes, Sequence, StepError
from .text import Detokenizer, Message, Messages, Prompt, Text
from .tools import Tool, run_tools

__version__ = "0.2.0"

__all__ = [
    "Answer", "ArgumentError", "BufferSizeError", "BusyError", "CallArguments", "CallBegin",
    "CallDropped", "CallEnd", "CancelledError", "CheckpointError", "ClosedError", "Constraint",
    "Content", "ContextFullError", "Detokenizer", "DeviceError", "Ended", "Engine", "Error",
    "Event", "Experts", "FileError", "Form", "FormatError", "GrammarError", "LibraryError",
    "Message", "Messages", "MismatchError", "Model", "NotFiniteError", "Options",
    "OutOfMemoryError", "PoolFullError", "Progress", "Prompt", "Reasoning",
    "Request", "Resumed", "Routes", "Sampler", "Sampling", "Sequence", "StepError",
    "Stream", "TemplateError", "Text", "Token", "Tool", "ToolCall", "TruncateError",
    "UnsupportedError", "find", "library_version", "run_tools",
]
