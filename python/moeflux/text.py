"""Text, its tokens and conversations: Text, Prompt, Detokenizer."""
from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, Iterable, List, Mapping, Optional, Sequence as Many, Tuple, Union

from . import _abi
from ._handle import Closing, Handle, opened
from ._library import check, decoded, encoded, int_array, load, sized
from .sampling import REASONING, Sampling, json_text

Message = Mapping[str, Any]
"""{"role": "user", "content": "…"}, as in the API of OpenAI."""

Messages = Union[str, Many[Message]]
"""A conversation, or the text of its only message, of the user."""

_SPECIAL = {"parse": _abi.MF_SPECIAL_PARSE, "as_text": _abi.MF_SPECIAL_AS_TEXT,
            "none": _abi.MF_SPECIAL_NONE}


@dataclass(frozen=True)
class Prompt:
    """A rendered conversation."""

    text: str
    tokens: Tuple[int, ...]
    content: Tuple[Tuple[int, int], ...]
    """(offset, length) in the bytes of the text: what messages, tools and variables brought."""
    places: Tuple[Tuple[int, int], ...]
    """(position, place) at which the prefix cache may keep its state; see find_places."""
    reasoning: str = "none"
    """Of REASONING."""


def messages_text(messages: Messages) -> str:
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    return json_text(list(messages))


def _read_prompt(pointer: Any) -> Prompt:
    library, count = load(), ctypes.c_size_t()
    text = ctypes.string_at(library.mf_prompt_text(pointer, count), count.value)
    tokens = library.mf_prompt_tokens(pointer, count)
    ids = tuple(tokens[:count.value]) if count.value else ()
    ranges = library.mf_prompt_content(pointer, count)
    content = tuple((one.offset, one.length) for one in ranges[:count.value]) if count.value else ()
    places = library.mf_prompt_places(pointer, count)
    spots = tuple((one.position, one.place) for one in places[:count.value]) if count.value else ()
    return Prompt(text.decode("utf-8", "replace"), ids, content, spots,
                  REASONING[library.mf_prompt_reasoning(pointer)])


class Text(Closing):
    """What a checkpoint says about text: tokenizer, special tokens, chat template, generation
    defaults.  `model.text` is a model's; Text(path) opens it without the weights.  Any number of
    threads may use it."""

    def __init__(self, path: Union[str, "os.PathLike[str]"], *, _handle: Optional[Handle] = None,
                 _pointer: Optional[int] = None) -> None:
        self._borrowed = _pointer
        if _handle is not None:
            self._handle = _handle  # of the model, which owns it
            return

        def open_it(_: Any) -> int:
            out, why = ctypes.c_void_p(), _abi.mf_error()
            check(load().mf_text_open(out, os.fsencode(path), None, why), why)
            return out.value or 0

        self._own(opened("text", None, open_it, load().mf_text_close))

    def close(self) -> None:
        if self._borrowed is None:
            super().close()

    def _use(self) -> Any:
        return _Borrowed(self._handle, self._borrowed)

    def tokenize(self, text: Union[str, bytes], special: str = "parse") -> List[int]:
        """Token ids; no BOS is added.  `special`: added tokens such as "<|im_end|>" are all
        recognised ("parse"), those marked special are text ("as_text"), or all are ("none": for
        text that is not trusted)."""
        data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else bytes(text)
        mode = _SPECIAL.get(special)
        if mode is None:
            raise ValueError(f"special is {special!r}, not one of {', '.join(_SPECIAL)}")
        count, why = ctypes.c_size_t(), _abi.mf_error()
        capacity = len(data) + 16
        while True:
            out = (ctypes.c_int32 * capacity)()
            with self._use() as pointer:
                status = load().mf_text_tokenize(pointer, out, capacity, count, data, len(data),
                                                 mode, why)
            if status != _abi.MF_ERR_BUFFER_SIZE:
                break
            capacity = count.value
        check(status, why)
        return out[:count.value]

    def detokenize(self, tokens: Iterable[int], show_special: bool = True) -> str:
        """The text of tokens; bytes that belong to no character become U+FFFD."""
        with Detokenizer(self, show_special=show_special) as stream:
            return "".join([stream.push(token) for token in tokens]) + stream.flush()

    def token_bytes(self, token: int) -> Optional[bytes]:
        """One token may be a part of a character; None: the id has none."""
        length = ctypes.c_size_t()
        with self._use() as pointer:
            at = load().mf_text_token_bytes(pointer, token, length)
            return None if at is None else ctypes.string_at(at, length.value)

    def token_name(self, token: int) -> Optional[str]:
        """As the tokenizer's file writes it ("Ġthe")."""
        with self._use() as pointer:
            return decoded(load().mf_text_token_name(pointer, token))

    def find_token(self, name: str) -> Optional[int]:
        """The id of "<|im_end|>"; None: there is none."""
        with self._use() as pointer:
            token = load().mf_text_find_token(pointer, encoded(name))
        return None if token < 0 else token

    def is_special(self, token: int) -> bool:
        with self._use() as pointer:
            return bool(load().mf_text_is_special(pointer, token))

    @property
    def token_count(self) -> int:
        """The highest token id + 1; 0: the checkpoint has no tokenizer."""
        with self._use() as pointer:
            return int(load().mf_text_token_count(pointer))

    @property
    def bos(self) -> Optional[int]:
        """The id that stands before every prompt."""
        with self._use() as pointer:
            token = load().mf_text_bos(pointer)
        return None if token < 0 else token

    @property
    def family(self) -> str:
        """The syntax in which the model writes reasoning and tool calls."""
        with self._use() as pointer:
            return decoded(load().mf_text_family(pointer)) or ""

    @property
    def template(self) -> Optional[str]:
        """The chat template as it was written; None: the checkpoint has none."""
        out, why = ctypes.c_void_p(), _abi.mf_error()
        with self._use() as pointer:
            check(load().mf_text_template(out, pointer, why), why)
            return decoded(load().mf_template_source(out)) if out.value else None

    @property
    def sampling(self) -> Sampling:
        """How the checkpoint wants tokens to be drawn."""
        out, why = sized(_abi.mf_sampler_options), _abi.mf_error()
        with self._use() as pointer:
            check(load().mf_text_sampling(pointer, out, why), why)
            return Sampling._of(out)

    def render(self, messages: Messages, *, tools: Any = None,
               variables: Optional[Mapping[str, Any]] = None, generation_prompt: bool = True,
               find_places: bool = False, now: int = 0) -> Prompt:
        """A conversation in the checkpoint's chat template.  What messages, tools and variables
        bring is content: "<|im_end|>" in it is plain text.  `variables` are the template's further
        ones, such as {"enable_thinking": False}; `now` is the time that it formats, in seconds
        since 1970 (0: of the machine's clock)."""
        options = sized(_abi.mf_chat_options)
        options.messages = encoded(messages_text(messages))
        options.tools = None if tools is None else encoded(json_text(tools))
        options.variables = None if variables is None else encoded(json_text(dict(variables)))
        options.no_generation_prompt = not generation_prompt
        options.find_places = find_places
        options.now = now
        out, why = ctypes.c_void_p(), _abi.mf_error()
        with self._use() as pointer:
            check(load().mf_chat_render(out, pointer, options, why), why)
        return self._take(out)

    def prompt(self, text: str) -> Prompt:
        """A text to continue as it is, with BOS where the model wants one."""
        data = text.encode("utf-8")
        out, why = ctypes.c_void_p(), _abi.mf_error()
        with self._use() as pointer:
            check(load().mf_prompt_from_text(out, pointer, data, len(data), why), why)
        return self._take(out)

    @staticmethod
    def _take(pointer: ctypes.c_void_p) -> Prompt:
        try:
            return _read_prompt(pointer)
        finally:
            load().mf_prompt_close(pointer)


class _Borrowed:
    """A use of a text: its own handle, or the model's."""

    def __init__(self, handle: Handle, pointer: Optional[int]) -> None:
        self._handle = handle
        self._pointer = pointer

    def __enter__(self) -> Any:
        own = self._handle.acquire()
        return own if self._pointer is None else self._pointer

    def __exit__(self, *_: object) -> None:
        self._handle.release()


class Detokenizer(Closing):
    """Tokens in, whole characters out.  One owner at a time."""

    def __init__(self, text: Text, *, show_special: bool = False,
                 family: Optional[str] = None) -> None:
        """`family`: the markup that the output parser of this family reads is kept."""
        options = sized(_abi.mf_detokenizer_options)
        options.show_special = show_special
        options.family = encoded(family)
        borrowed = text._borrowed

        def open_it(above: Any) -> int:
            out, why = ctypes.c_void_p(), _abi.mf_error()
            own = above if borrowed is None else borrowed
            check(load().mf_detokenizer_open(out, own, options, why), why)
            return out.value or 0

        self._own(opened("detokenizer", text._handle, open_it, load().mf_detokenizer_close))

    def push(self, token: int) -> str:
        """What the token makes ready; may be empty."""
        length = ctypes.c_size_t()
        with self._handle as pointer:
            at = load().mf_detokenizer_push(pointer, token, length)
            return ctypes.string_at(at, length.value).decode() if length.value else ""

    def flush(self) -> str:
        """The end: U+FFFD if a character is still open."""
        length = ctypes.c_size_t()
        with self._handle as pointer:
            at = load().mf_detokenizer_flush(pointer, length)
            return ctypes.string_at(at, length.value).decode() if length.value else ""


def token_array(tokens: Union[Prompt, Iterable[int]]) -> Any:
    """Ids for a call of the library."""
    return int_array(ctypes.c_int32, tokens.tokens if isinstance(tokens, Prompt) else tokens)
