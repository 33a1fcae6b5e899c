"""Answers: the requests layer, many at a time.

    Stream    one request under way: an iterator of typed events
    Answer    how it ended
    Answering what a Model does with them: chat, stream, complete, batch

The library reads prompts and generates tokens in a thread of its own.  Its callbacks put events
into a queue; iterating takes them out, in any thread.  So nothing of a caller runs in the
library's thread but `on_routes`."""
from __future__ import annotations

import ctypes
import itertools
import json
import queue
import threading
from dataclasses import dataclass, field
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional,
                    Sequence as Many, Tuple, TypedDict, Union)

from . import _abi
from ._calls import take
from ._handle import Closing, Handle, inside_callback, opened
from ._library import check, decoded, encoded, exception, int_array, load, sized
from .errors import CancelledError, ClosedError, Error
from .sampling import Form, Sampling, Schema, json_text
from .sequence import Resumed, Routes, resumed_of, routes_of, statistics_of
from .text import Messages, Prompt

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .text import Text
    from .tools import Tool

FINISHES = ("none", "end", "stop", "length", "cancelled", "failed")


@dataclass(frozen=True)
class Progress:
    """Tokens of the prompt that were read."""

    done: int
    total: int


@dataclass(frozen=True)
class Reasoning:
    text: str


@dataclass(frozen=True)
class Content:
    text: str


@dataclass(frozen=True)
class CallBegin:
    """A tool call; its arguments follow."""

    call: int  #: its number, from 0
    name: str
    id: Optional[str]  #: that the model itself gave


@dataclass(frozen=True)
class CallArguments:
    call: int
    text: str  #: a piece of a JSON object


@dataclass(frozen=True)
class CallEnd:
    call: int


@dataclass(frozen=True)
class CallDropped:
    """The call that began is none; its text comes as text."""

    call: int


@dataclass(frozen=True)
class Token:
    """A token that was taken, if logprobs are asked for."""

    id: int
    logprob: float
    best: Tuple[Tuple[int, float], ...]  #: the most probable ones, best first


@dataclass(frozen=True)
class ToolCall:
    name: str
    arguments: Any  #: the value of the JSON text
    id: Optional[str] = None


@dataclass(frozen=True)
class Answer:
    """How a request ended."""

    content: str
    reasoning: str
    tool_calls: Tuple[ToolCall, ...]
    finish: str  #: "end", "stop", "length" or "cancelled"
    stop: Optional[str]  #: the stop string that was found
    prompt_tokens: int
    answer_tokens: int
    wait_seconds: float  #: until its first step
    prompt_seconds: float  #: from then until the first token
    answer_seconds: float
    parked: int  #: times that it made room for others
    cached: Resumed  #: what it found in the prefix cache

    @property
    def message(self) -> Dict[str, Any]:
        """The answer as a message for the next turn."""
        out: Dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning:
            out["reasoning_content"] = self.reasoning
        if self.tool_calls:
            out["tool_calls"] = [
                {"type": "function", **({"id": call.id} if call.id else {}),
                 "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls]
        return out

    def json(self) -> Any:
        """The value of the content, where a schema made it JSON."""
        return json.loads(self.content)


@dataclass(frozen=True)
class Ended:
    """The last event."""

    answer: Answer


Event = Union[Progress, Reasoning, Content, CallBegin, CallArguments, CallEnd, CallDropped, Token,
              Ended]


@dataclass(frozen=True)
class Request:
    """One of a batch, with options of its own; those that are not set are the batch's."""

    messages: Union[Messages, Prompt]
    options: Mapping[str, Any] = field(default_factory=dict)


# ------------------------------------------------------------------------ callbacks


class _Talk:
    """What the callbacks of a request know; in _talks until the request has ended."""

    def __init__(self, put: Callable[[Any], None], progress: bool, events: bool,
                 on_routes: Optional[Callable[[Routes], Any]]) -> None:
        self.put = put
        self.progress = progress
        self.events = events
        self.on_routes = on_routes
        self.problem: Optional[BaseException] = None
        self.request = ctypes.c_void_p()

    def guarded(self, call: Callable[[], Any]) -> bool:
        """False: it raised, now or before, and the request is cancelled."""
        if self.problem is not None:
            return False
        try:
            with inside_callback():
                call()
            return True
        except BaseException as error:
            self.problem = error
            load().mf_request_cancel(self.request)
            return False


_talks: Dict[int, _Talk] = {}
_numbers = itertools.count(1)
_END = object()


def _text(at: Any, length: int) -> str:
    return ctypes.string_at(at, length).decode("utf-8", "replace") if length else ""


def _event(struct: _abi.mf_event) -> Event:
    text = _text(struct.text, struct.length)
    kind = struct.kind
    if kind == _abi.MF_EVENT_CONTENT:
        return Content(text)
    if kind == _abi.MF_EVENT_REASONING:
        return Reasoning(text)
    if kind == _abi.MF_EVENT_CALL_BEGIN:
        return CallBegin(struct.call, text, _text(struct.id, struct.id_length) or None)
    if kind == _abi.MF_EVENT_CALL_ARGUMENTS:
        return CallArguments(struct.call, text)
    if kind == _abi.MF_EVENT_CALL_END:
        return CallEnd(struct.call)
    return CallDropped(struct.call)


def _take_event(user: int, event: Any) -> bool:
    talk = _talks[user]
    if not talk.events:
        return talk.problem is None
    return talk.guarded(lambda: talk.put(_event(event.contents)))


def _take_token(user: int, token: Any) -> bool:
    talk, one = _talks[user], token.contents
    best = tuple((each.token, each.logprob) for each in one.logprobs[:one.logprob_count]) \
        if one.logprob_count else ()
    return talk.guarded(lambda: talk.put(Token(one.token, one.logprob, best)))


def _take_progress(user: int, done: int, total: int) -> None:
    talk = _talks[user]
    if talk.progress:
        talk.guarded(lambda: talk.put(Progress(done, total)))


def _take_routes(user: int, routes: Any) -> None:
    talk = _talks[user]
    on_routes = talk.on_routes
    if on_routes is not None:
        call = on_routes
        talk.guarded(lambda: call(routes_of(routes.contents)))


def _take_end(user: int, _: Any) -> None:
    talk = _talks.pop(user)
    talk.put(_END)


_fields = dict(_abi.mf_request_options._fields_)
_event_function = _abi.mf_event_function(_take_event)
_token_function = _fields["token"](_take_token)  # type: ignore[operator]
_progress_function = _abi.mf_progress_function(_take_progress)
_routes_function = _abi.mf_routes_function(_take_routes)
_end_function = _fields["ended"](_take_end)  # type: ignore[operator]


# --------------------------------------------------------------------------- stream


class Stream(Closing, Iterator[Event]):
    """The events of an answer, as the model writes it.  The last one is Ended; a failure is raised
    instead.  One thread iterates; any thread may cancel().  Leaving a `with`, close() and the
    collector cancel what has not ended; so does an exception, as of Ctrl-C, while waiting."""

    def __init__(self, queue_: "queue.SimpleQueue[Any]", talk: _Talk, handle: Handle) -> None:
        self._queue = queue_
        self._talk = talk
        self._answer: Optional[Answer] = None
        self._error: Optional[BaseException] = None
        self._over = False
        self._own(handle)

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Event:
        if self._over:
            raise StopIteration
        if self.closed:
            raise ClosedError("the stream is closed")
        try:
            event = take(self._queue)
        except BaseException:
            self.cancel()
            raise
        if event is not _END:
            return event  # type: ignore[no-any-return]
        self._over = True
        self._settle()
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return Ended(self._answer)

    def _settle(self) -> None:
        """The request has ended: reads how, and frees it."""
        try:
            with self._handle as pointer:
                self._answer = _read_answer(pointer)
        except Error as error:
            self._error = error
        if self._talk.problem is not None:
            self._error = self._talk.problem
        self.close()

    @property
    def text(self) -> Iterator[str]:
        """Only the content's pieces."""
        return (event.text for event in self if isinstance(event, Content))

    def answer(self) -> Answer:
        """Waits for the end.  A request that was cancelled gives what it had, with finish
        "cancelled"; one that failed raises."""
        for _ in self:
            pass
        if self._error is not None:
            raise self._error
        assert self._answer is not None
        return self._answer

    def cancel(self) -> None:
        """Ends the request within a layer.  From any thread, and from callbacks."""
        try:
            pointer = self._handle.acquire(anywhere=True)
        except ClosedError:
            return  # it has ended
        try:
            load().mf_request_cancel(pointer)
        finally:
            self._handle.release()


def _read_answer(pointer: Any) -> Answer:
    result, why, text = sized(_abi.mf_request_result), _abi.mf_error(), ctypes.c_char_p()
    status = load().mf_request_wait(pointer, result, why)
    if status not in (_abi.MF_OK, _abi.MF_ERR_CANCELLED):
        raise exception(status, why)
    message: Dict[str, Any] = {}
    if load().mf_request_message(text, pointer, why) == _abi.MF_OK:
        message = json.loads((text.value or b"{}").decode("utf-8", "replace"))
    calls = tuple(ToolCall(call["name"], call.get("arguments"), call.get("id"))
                  for call in message.get("tool_calls") or ())
    return Answer(message.get("content") or "", message.get("reasoning") or "", calls,
                  FINISHES[result.finish], decoded(result.stop), result.prompt_tokens,
                  result.answer_tokens, result.wait_seconds, result.prompt_seconds,
                  result.answer_seconds, result.parked, resumed_of(result.cached))


# ------------------------------------------------------------------------ answering


class Options(TypedDict, total=False):
    """The options of chat, stream, complete and batch."""

    sampling: Optional[Sampling]  #: None: as the checkpoint wants it (model.sampling)
    max_tokens: int  #: of the answer; 0: as the context allows
    schema: Optional[Schema]  #: a JSON schema that the answer is held to
    grammar: Optional[str]  #: a grammar (GBNF) that the answer is held to
    tools: Optional[Iterable[Union["Tool", Callable[..., Any], Mapping[str, Any]]]]
    #: what the model may call: Tool objects, functions, descriptions as in OpenAI's API
    tool_choice: Optional[str]  #: "auto", "required", "none" or a tool's name
    one_call: bool  #: at most one call
    variables: Optional[Mapping[str, Any]]  #: of the template, as {"enable_thinking": False}
    stop: Union[str, Many[str]]  #: texts that end the answer
    logprobs: Optional[int]  #: how many of the most probable tokens each Token event has
    progress: bool  #: Progress events while the prompt is read
    on_routes: Optional[Callable[[Routes], Any]]  #: for each layer, in the library's thread
    background: bool  #: gets what others leave
    client: int  #: requests with the same number share one part of the time
    ignore_end: bool  #: go on after tokens that end an answer


class Answering:
    """Requests of a model; Options says what is common to all calls."""

    _handle: Handle
    _scheduler: Optional[Handle]

    @property
    def text(self) -> "Text":
        raise NotImplementedError

    def _start_answering(self, parallel: int, waiting: int, cached: bool) -> None:
        self._scheduler = None
        self._finds_places = cached  # of prompts, for the prefix cache
        self._scheduler_lock = threading.Lock()
        self._scheduler_options = sized(_abi.mf_scheduler_options)
        self._scheduler_options.parallel = parallel
        self._scheduler_options.waiting = waiting

    def _stop_answering(self) -> None:
        with self._scheduler_lock:
            if self._scheduler is not None:
                self._scheduler_owner.close()

    def _scheduling(self) -> Handle:
        """The scheduler, opened with the first request."""
        with self._scheduler_lock:
            if self._scheduler is None:
                def open_it(above: Any) -> int:
                    out, why = ctypes.c_void_p(), _abi.mf_error()
                    check(load().mf_scheduler_open(out, above, self._scheduler_options, why), why)
                    return out.value or 0

                handle = opened("scheduler", self._handle, open_it, load().mf_scheduler_close)
                self._scheduler_owner = _Owner(handle)
                self._scheduler = handle
            return self._scheduler

    # ------------------------------------------------------------------ calls

    def chat(self, messages: Union[Messages, Prompt], **options: "Unpack[Options]") -> Answer:
        """The answer to a conversation, or to the text of its only message."""
        with self._submit(messages, options, events=False) as stream:
            return stream.answer()

    def stream(self, messages: Union[Messages, Prompt], **options: "Unpack[Options]") -> Stream:
        """The same as an iterator of events."""
        return self._submit(messages, options)

    def complete(self, prompt: Union[str, Iterable[int]], **options: "Unpack[Options]") -> Answer:
        """Continues a text (or token ids) as it is, without the chat template."""
        with self._submit(self._plain(prompt), options, events=False, parse=False) as stream:
            return stream.answer()

    def stream_completion(self, prompt: Union[str, Iterable[int]], **options: "Unpack[Options]") -> Stream:
        return self._submit(self._plain(prompt), options, parse=False)

    def batch(self, requests: Iterable[Union[Messages, Prompt, Request]], *,
              return_errors: bool = False, **options: "Unpack[Options]") -> List[Any]:
        """Answers to many conversations, computed together, in their order.  The first failure
        cancels the others and is raised; with `return_errors` it stands in the answer's place."""
        answers: Dict[int, Any] = {}
        for index, answer in self.batch_iter(requests, **options):
            if isinstance(answer, BaseException) and not return_errors:
                raise answer
            answers[index] = answer
        return [answers[index] for index in range(len(answers))]

    def batch_iter(self, requests: Iterable[Union[Messages, Prompt, Request]], *,
                   window: int = 256, **options: "Unpack[Options]"
                   ) -> Iterator[Tuple[int, Union[Answer, BaseException]]]:
        """(number, answer or error) of each as it ends; at most `window` are submitted at a time.
        A generator that is closed early cancels the rest."""
        done: "queue.SimpleQueue[int]" = queue.SimpleQueue()
        running: Dict[int, Stream] = {}
        source = enumerate(requests)
        try:
            more = True
            while more or running:
                while more and len(running) < window:
                    try:
                        index, one = next(source)
                    except StopIteration:
                        more = False
                        break
                    try:
                        running[index] = self._submit_one(one, options, done, index)
                    except Error as error:
                        yield index, error
                if running:
                    index = take(done)
                    yield index, _outcome(running.pop(index))
        finally:
            for stream in running.values():
                stream.cancel()
            for stream in running.values():
                stream.close()

    def _submit_one(self, one: Any, common: Mapping[str, Any], done: "queue.SimpleQueue[int]",
                    index: int) -> Stream:
        messages = one.messages if isinstance(one, Request) else one
        own = one.options if isinstance(one, Request) else {}
        return self._submit(messages, {**common, **own}, events=False,
                            at_end=lambda: done.put(index))

    def request_statistics(self) -> Dict[str, Any]:
        """The fields of mf_scheduler_statistics: what runs, waits and has ended."""
        out, why = sized(_abi.mf_scheduler_statistics), _abi.mf_error()
        with self._scheduling() as pointer:
            check(load().mf_scheduler_stats(pointer, out, why), why)
            numbers = statistics_of(out)
        numbers["ended"] = dict(zip(FINISHES, numbers["ended"]))
        return numbers

    # ---------------------------------------------------------------- submit

    def _plain(self, prompt: Union[str, Iterable[int]]) -> Prompt:
        if isinstance(prompt, str):
            return self.text.prompt(prompt)
        return Prompt("", tuple(prompt), (), ())

    def _submit(self, messages: Union[Messages, Prompt], options: Mapping[str, Any], *,
                events: bool = True, parse: bool = True,
                at_end: Optional[Callable[[], None]] = None) -> Stream:
        asked = _Asked(**options)
        from .tools import descriptions
        tools = None if asked.tools is None else json_text(descriptions(asked.tools))
        prompt = messages if isinstance(messages, Prompt) else self.text.render(
            messages, tools=tools, variables=asked.variables, find_places=self._finds_places)
        struct = sized(_abi.mf_request_options)
        kept: List[Any] = []
        asked.fill(struct, prompt, tools, self.text if parse else None, kept)
        sampling = (asked.sampling or self.text.sampling)._struct()
        struct.sampling = ctypes.pointer(sampling)
        return _start(self._scheduling(), struct, asked, events, at_end)


class _Owner(Closing):
    """Closes the scheduler with the model that has it."""

    def __init__(self, handle: Handle) -> None:
        self._own(handle)


@dataclass(frozen=True)
class _Asked:
    """Options with their defaults."""

    sampling: Optional[Sampling] = None
    max_tokens: int = 0
    schema: Optional[Schema] = None
    grammar: Optional[str] = None
    tools: Optional[Iterable[Union["Tool", Callable[..., Any], Mapping[str, Any]]]] = None
    tool_choice: Optional[str] = None
    one_call: bool = False
    variables: Optional[Mapping[str, Any]] = None
    stop: Union[str, Many[str]] = ()
    logprobs: Optional[int] = None
    progress: bool = False
    on_routes: Optional[Callable[[Routes], Any]] = None
    background: bool = False
    client: int = 0
    ignore_end: bool = False

    def fill(self, struct: _abi.mf_request_options, prompt: Prompt, tools: Optional[str],
             text: Optional["Text"], kept: List[Any]) -> None:
        """`text` None: the answer is not parsed."""
        struct.tokens = int_array(ctypes.c_int32, prompt.tokens)
        struct.token_count = len(prompt.tokens)
        places = [position for position, _ in prompt.places][:4]
        struct.breakpoints = int_array(ctypes.c_uint32, places)
        struct.breakpoint_count = len(places)
        struct.max_tokens = self.max_tokens
        struct.ignore_end = self.ignore_end
        stops = [self.stop] if isinstance(self.stop, str) else list(self.stop)
        struct.stops = (ctypes.c_char_p * len(stops))(*[encoded(stop) for stop in stops])
        struct.stop_count = len(stops)
        struct.family = encoded(text.family) if text is not None else None
        struct.tools = encoded(tools)
        struct.stream_calls = tools is not None
        struct.token_logprobs = self.logprobs is not None
        struct.logprobs = self.logprobs or 0
        struct.priority = (_abi.MF_PRIORITY_BACKGROUND if self.background
                           else _abi.MF_PRIORITY_INTERACTIVE)
        struct.client = self.client
        form = Form(self.schema, self.grammar, tools, self.tool_choice, self.one_call)
        if not form.empty:
            constraint = form._struct(prompt.reasoning)
            struct.constraint = ctypes.pointer(constraint)
            kept.append(constraint)


def _start(scheduler: Handle, struct: _abi.mf_request_options, asked: _Asked, events: bool,
           at_end: Optional[Callable[[], None]]) -> Stream:
    waiting: "queue.SimpleQueue[Any]" = queue.SimpleQueue()

    def put(item: Any) -> None:
        waiting.put(item)
        if item is _END and at_end is not None:
            at_end()

    talk, number = _Talk(put, asked.progress, events, asked.on_routes), next(_numbers)
    struct.user = number
    struct.event, struct.ended = _event_function, _end_function
    if asked.progress:
        struct.progress = _progress_function
    if asked.logprobs is not None:
        struct.token = _token_function
    if asked.on_routes is not None:
        struct.routes = _routes_function

    def open_it(above: Any) -> int:
        why = _abi.mf_error()
        check(load().mf_request_submit(talk.request, above, struct, why), why)
        return talk.request.value or 0

    _talks[number] = talk
    try:
        handle = opened("request", scheduler, open_it, load().mf_request_close)
    except BaseException:
        _talks.pop(number, None)
        raise
    return Stream(waiting, talk, handle)


def _outcome(stream: Stream) -> Union[Answer, BaseException]:
    try:
        return stream.answer()
    except (Exception, CancelledError) as error:
        return error
