#!/usr/bin/env python3
"""drop_commands.py PATTERN <compile_commands.json: without the commands whose output matches."""
import json
import re
import sys

pattern = re.compile(sys.argv[1])
json.dump([c for c in json.load(sys.stdin) if not pattern.search(c["output"])], sys.stdout,
          indent=0)
