#!/usr/bin/env python3
"""forms.py MODEL: an answer held to a schema, and a function that the model calls.

    python3 forms.py models/pebble
"""
import sys
from typing import Literal

import moeflux

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20},
                   "age": {"type": "integer", "minimum": 0, "maximum": 120}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def get_weather(city: Literal["Paris", "Tokyo", "Rome"], unit: Literal["C", "F"] = "C") -> str:
    """The weather of a city, now."""
    return f"It is sunny in {city}, 21 degrees {unit}."


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with moeflux.Model(sys.argv[1]) as model:
        plain = {"enable_thinking": False}
        person = model.chat("Invent a person.", schema=PERSON, variables=plain).json()
        print("person:", person)
        answer = model.chat("Is it warm in Paris?", tools=[get_weather], tool_choice="required",
                            one_call=True, variables=plain)
        for call in answer.tool_calls:
            print("call:", call.name, call.arguments)
            print("result:", get_weather(**call.arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
