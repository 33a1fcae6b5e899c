"""Tools: functions that a model may call."""
from __future__ import annotations

import enum
import inspect
import json
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Union

from .requests import Answer, ToolCall

if TYPE_CHECKING:
    from .engine import Model
    from .text import Messages

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def _schema(kind: Any) -> Dict[str, Any]:
    """The JSON schema of a type hint; an unknown one allows anything."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin is Union or str(origin) == "<class 'types.UnionType'>":
        return {"anyOf": [_schema(one) for one in inner]}
    if kind is list or origin is list:
        return {"type": "array", **({"items": _schema(inner[0])} if inner else {})}
    if kind is dict or origin is dict:
        return {"type": "object"}
    return {}


@dataclass(frozen=True)
class Tool:
    """A function with its description.  Its arguments have a JSON schema, which the library holds
    the model to."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Optional[Callable[..., Any]] = None

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Tool":
        """From a function's name, first paragraph and type hints."""
        hints = typing.get_type_hints(function)
        properties: Dict[str, Any] = {}
        required: List[str] = []
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD,
                                  parameter.POSITIONAL_ONLY):
                raise ValueError(f"{function.__name__}: the argument {name} has no place in a JSON "
                                 "object")
            properties[name] = _schema(hints.get(name))
            if parameter.default is parameter.empty:
                required.append(name)
        text = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
        return cls(function.__name__, text, {"type": "object", "properties": properties,
                                             "required": required,
                                             "additionalProperties": False}, function)

    @property
    def value(self) -> Dict[str, Any]:
        """As in the API of OpenAI."""
        return {"type": "function", "function": {"name": self.name, "description": self.description,
                                                 "parameters": dict(self.parameters)}}


AnyTool = Union[Tool, Callable[..., Any], Mapping[str, Any]]


def descriptions(tools: Union[str, Iterable[AnyTool]]) -> Any:
    """The JSON value of tools; a text is taken as it is."""
    if isinstance(tools, str):
        return tools
    return [tool if isinstance(tool, Mapping) else _tool(tool).value for tool in tools]


def _tool(tool: Union[Tool, Callable[..., Any]]) -> Tool:
    return tool if isinstance(tool, Tool) else Tool.of(tool)


def run_tools(model: "Model", messages: "Messages", tools: Iterable[Union[Tool, Callable[..., Any]]],
              *, rounds: int = 8, **options: Any) -> List[Dict[str, Any]]:
    """Answers with the help of tools: calls the functions that the model asks for and goes on with
    their results, until it answers without a call, at most `rounds` times.  Returns the new
    messages; the last one is the answer.  What a function raises becomes its result, so that the
    model can correct its call; KeyboardInterrupt and the like are raised."""
    known = {tool.name: tool for tool in map(_tool, tools)}
    talk: List[Any] = [{"role": "user", "content": messages}] if isinstance(messages, str) \
        else list(messages)
    first = len(talk)
    for _ in range(rounds):
        answer: Answer = model.chat(talk, tools=list(known.values()), **options)
        talk.append(answer.message)
        if not answer.tool_calls:
            break
        for call in answer.tool_calls:
            talk.append({"role": "tool", "name": call.name,
                         **({"tool_call_id": call.id} if call.id else {}),
                         "content": _result(known, call)})
    return talk[first:]


def _result(known: Mapping[str, Tool], call: ToolCall) -> str:
    tool = known.get(call.name)
    if tool is None or tool.function is None:
        return json.dumps({"error": f"there is no tool {call.name}"})
    try:
        result = tool.function(**call.arguments)
    except Exception as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}"})
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
