"""From logits to tokens: Sampling (the options), Sampler, Constraint."""
from __future__ import annotations

import ctypes
import json
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence as Many, Tuple, Union

from . import _abi
from ._handle import Closing, opened
from ._library import check, encoded, exception, int_array, load, sized

if TYPE_CHECKING:
    from .engine import Model
    from .sequence import Sequence

Schema = Union[str, Mapping[str, Any], bool]
"""A JSON schema: its text or its value."""

REASONING = ("none", "may", "open")
"""Where a prompt leaves the model: in no reasoning, before it may begin one, or inside of one."""

Logits = Any
"""A sequence, whose last row is used where it lies, or a buffer of vocab_size floats."""


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; the defaults take the most likely one.  The same options, logits and
    history give the same tokens on every machine."""

    temperature: float = 0.0  #: 0: always the most likely token
    top_k: int = 0  #: the k best; 0: off
    top_p: float = 0.0  #: the fewest best that reach this probability; 0 or 1: off
    min_p: float = 0.0  #: those at least this fraction of the best one's probability; 0: off
    typical_p: float = 0.0  #: the fewest nearest to the expected surprise; 0 or 1: off
    seed: int = 0
    penalty_window: int = 0  #: accepted tokens that penalties look at; 0: 1024
    repetition_penalty: float = 0.0  #: prompt and answer; 0 or 1: off
    frequency_penalty: float = 0.0  #: answer, for each occurrence; 0: off
    presence_penalty: float = 0.0  #: answer, once; 0: off
    dry_multiplier: float = 0.0  #: against long repetitions; 0: off
    dry_base: float = 0.0  #: 0: 1.75
    dry_allowed_length: int = 0  #: 0: 2
    dry_breakers: Tuple[int, ...] = ()  #: tokens that a repetition never reaches across
    biases: Tuple[Tuple[int, float], ...] = ()  #: (token, bias); -inf: never this token

    def with_(self, **changes: Any) -> "Sampling":
        """A copy with other values: `model.sampling.with_(seed=7)`."""
        return replace(self, **changes)

    def _struct(self) -> _abi.mf_sampler_options:
        """Its arrays are kept by ctypes."""
        out = sized(_abi.mf_sampler_options)
        for field in fields(self):
            if field.name not in ("dry_breakers", "biases"):
                setattr(out, field.name, getattr(self, field.name))
        if self.dry_breakers:
            out.dry_breakers = int_array(ctypes.c_int32, self.dry_breakers)
            out.dry_breaker_count = len(self.dry_breakers)
        if self.biases:
            biases = [_abi.mf_logit_bias(token=token, bias=bias) for token, bias in self.biases]
            out.biases = (_abi.mf_logit_bias * len(biases))(*biases)
            out.bias_count = len(biases)
        return out  # type: ignore[no-any-return]

    @classmethod
    def _of(cls, struct: _abi.mf_sampler_options) -> "Sampling":
        plain = {field.name: getattr(struct, field.name) for field in fields(cls)
                 if field.name not in ("dry_breakers", "biases")}
        return cls(dry_breakers=tuple(struct.dry_breakers[:struct.dry_breaker_count]),
                   biases=tuple((one.token, one.bias) for one in struct.biases[:struct.bias_count]),
                   **plain)


def json_text(value: Any) -> str:
    """A schema, tools or messages as JSON: text is taken as it is."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class _Row:
    """A row of logits for one call: the library's own, or the caller's buffer."""

    def __init__(self, logits: Logits, vocab_size: int) -> None:
        from .sequence import Sequence
        self._sequence = logits if isinstance(logits, Sequence) else None
        self._array: Any = None
        if self._sequence is not None:
            return
        view = memoryview(logits)
        if view.nbytes != vocab_size * 4 or view.itemsize != 4 or view.format.strip("<=@") != "f":
            raise ValueError(f"logits are {vocab_size} floats of 32 bits, here are {view.nbytes} "
                             f"bytes of format {view.format!r}")
        self._array = (ctypes.c_float * vocab_size).from_buffer_copy(view.tobytes())

    def __enter__(self) -> Any:
        if self._sequence is None:
            return self._array
        return load().mf_sequence_logits(self._sequence._begin())

    def __exit__(self, *_: object) -> None:
        if self._sequence is not None:
            self._sequence._end()


class Sampler(Closing):
    """Draws tokens, with the history that penalties look at.  One owner at a time."""

    def __init__(self, model: "Model", sampling: Optional[Sampling] = None) -> None:
        """`sampling` None: greedy."""
        self._vocab_size = model.vocab_size
        options = None if sampling is None else sampling._struct()

        def open_it(above: Any) -> int:
            out, why = ctypes.c_void_p(), _abi.mf_error()
            check(load().mf_sampler_open(out, above, options, why), why)
            return out.value or 0

        self._own(opened("sampler", model._handle, open_it, load().mf_sampler_close))

    def pick(self, logits: Logits) -> Optional[int]:
        """The next token; None: the logits allow none.  The history is not changed."""
        with self._handle as pointer, _Row(logits, self._vocab_size) as row:
            token = load().mf_sampler_pick(pointer, row)
        return None if token < 0 else token

    def accept(self, token: int) -> None:
        with self._handle as pointer:
            load().mf_sampler_accept(pointer, token)

    def accept_prompt(self, tokens: Many[int]) -> None:
        """For repetition penalty and DRY."""
        ids = int_array(ctypes.c_int32, tokens)
        with self._handle as pointer:
            load().mf_sampler_accept_prompt(pointer, ids, len(ids))

    def reset(self) -> None:
        """No history, and at its seed again."""
        with self._handle as pointer:
            load().mf_sampler_reset(pointer)

    def logprobs(self, logits: Logits, count: int) -> List[Tuple[int, float]]:
        """The most probable tokens of the model's own distribution, best first."""
        out = (_abi.mf_logprob * count)()
        with self._handle as pointer, _Row(logits, self._vocab_size) as row:
            written = load().mf_sampler_logprobs(pointer, out, count, row)
        return [(one.token, one.logprob) for one in out[:written]]

    def logprob_of(self, logits: Logits, token: int) -> float:
        with self._handle as pointer, _Row(logits, self._vocab_size) as row:
            return float(load().mf_sampler_logprob_of(pointer, row, token))


@dataclass(frozen=True)
class Form:
    """The form of an answer: a JSON schema or a grammar (GBNF), and what calls are allowed."""

    schema: Optional[Schema] = None
    grammar: Optional[str] = None
    tools: Optional[str] = None  #: JSON array
    tool_choice: Optional[str] = None  #: "auto", "required", "none" or a tool's name
    one_call: bool = False
    family: Optional[str] = None  #: syntax of reasoning and calls; None: the model's

    @property
    def empty(self) -> bool:
        return self.schema is None and self.grammar is None and self.tools is None

    def _struct(self, reasoning: str) -> _abi.mf_constraint_options:
        out = sized(_abi.mf_constraint_options)
        out.grammar = encoded(self.grammar)
        out.json_schema = None if self.schema is None else encoded(json_text(self.schema))
        out.tools = encoded(self.tools)
        out.tool_choice = encoded(self.tool_choice)
        out.one_call = self.one_call
        out.family = encoded(self.family)
        out.reasoning = REASONING.index(reasoning)
        return out  # type: ignore[no-any-return]


class Constraint(Closing):
    """Holds an answer to a form, token by token:

        while not constraint.finished:
            token = constraint.pick(sampler, sequence)
            if token is None: break
            constraint.accept(token); sampler.accept(token); sequence.feed([token], generated=True)
    """

    def __init__(self, model: "Model", form: Form, reasoning: str = "none") -> None:
        """`reasoning`: where the prompt leaves the model, Prompt.reasoning."""
        self._vocab_size = model.vocab_size
        self.notes: List[str] = []
        """A sentence for each part of the schema that is not kept exactly."""
        options = form._struct(reasoning)
        options.note = type(options.note)(lambda _, text: self.notes.append(text.decode()))

        def open_it(above: Any) -> int:
            out, why = ctypes.c_void_p(), _abi.mf_error()
            check(load().mf_constraint_open(out, above, options, why), why)
            return out.value or 0

        self._own(opened("constraint", model._handle, open_it, load().mf_constraint_close))

    def pick(self, sampler: Sampler, logits: Logits, remaining: Optional[int] = None
             ) -> Optional[int]:
        """The next token that the form allows; None: the answer is finished, or no token
        continues it.  `remaining`: tokens that may still come; the answer closes within them."""
        if remaining is not None and remaining < 1:
            raise ValueError(f"remaining is {remaining}, at least 1 is needed")
        most = ctypes.c_size_t(-1).value if remaining is None else remaining
        with self._handle as pointer, sampler._handle as drawing:
            with _Row(logits, self._vocab_size) as row:
                token = load().mf_constraint_pick(pointer, drawing, row, most)
        return None if token < 0 else token

    def accept(self, token: int) -> None:
        with self._handle as pointer:
            if not load().mf_constraint_accept(pointer, token):
                raise exception(_abi.MF_ERR_ARGUMENT, _abi.mf_error(
                    text=f"token {token} is not allowed here".encode()))

    @property
    def complete(self) -> bool:
        """The answer so far is complete."""
        with self._handle as pointer:
            return bool(load().mf_constraint_is_complete(pointer))

    @property
    def finished(self) -> bool:
        """Nothing can follow."""
        with self._handle as pointer:
            return bool(load().mf_constraint_is_finished(pointer))

    @property
    def closing_tokens(self) -> int:
        """An upper bound on the tokens of the shortest way to the end."""
        with self._handle as pointer:
            return int(load().mf_constraint_closing_tokens(pointer))

    def reset(self) -> None:
        with self._handle as pointer:
            load().mf_constraint_reset(pointer)
