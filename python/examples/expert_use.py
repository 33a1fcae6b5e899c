#!/usr/bin/env python3
"""expert_use.py MODEL OUT.svg|OUT.png [PROMPT]: which experts a text uses, as a picture.

Cells between lines of `# %%` run one after the other, in an editor that knows them or as a whole:

    python3 expert_use.py models/pebble experts.svg "Tell me a story about a fox."

A row is a layer, a column an expert; the darker, the more often the router chose it.  Experts are
sorted by use in each row, so that the shape shows how much a cache can gain: were all used
alike, the picture would be even.  matplotlib draws it if it is installed, else this file does.
"""
# %% The model and what it is asked
import sys
from collections import Counter
from typing import Dict, List

import moeflux

if len(sys.argv) not in (3, 4):
    sys.exit(__doc__)
path, target = sys.argv[1], sys.argv[2]
prompt = sys.argv[3] if len(sys.argv) == 4 else "Tell me a story about a fox and a river."
model = moeflux.Model(path)
shape = model.experts()

# %% Generate, and count what every layer's router chooses
uses: Dict[int, Counter] = {layer: Counter() for layer in shape.rows}
tokens = 0


def count(routes: moeflux.Routes) -> None:
    """In the library's thread: short, and no call of the library."""
    for experts in routes.experts:
        uses[routes.layer].update(experts)


answer = model.chat(prompt, max_tokens=120, ignore_end=True, on_routes=count,
                    variables={"enable_thinking": False})
tokens = answer.prompt_tokens + answer.answer_tokens
print(f"{tokens} tokens, {shape.experts_per_token} of {shape.expert_count} experts each, "
      f"{len(shape.rows)} layers")

# %% How much of the use the most popular quarter of the experts has
quarter = shape.expert_count // 4
rows: List[List[int]] = [sorted((uses[layer][expert] for expert in range(shape.expert_count)),
                                reverse=True) for layer in shape.rows]
for layer, row in zip(shape.rows, rows):
    share = sum(row[:quarter]) / max(sum(row), 1)
    print(f"layer {layer:3d}: the most used {quarter} experts have {share:4.0%} of all uses, "
          f"{sum(1 for one in row if one == 0):3d} have none")


# %% The picture
def draw_svg(file_name: str) -> None:
    cell, left, top = max(4, 640 // shape.expert_count), 60, 40
    width, height = left + cell * shape.expert_count + 20, top + cell * len(rows) + 40
    most = max(max(row) for row in rows) or 1
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           'font-family="sans-serif" font-size="11">',
           f'<rect width="{width}" height="{height}" fill="white"/>',
           f'<text x="{left}" y="20">uses of experts, sorted in each layer: {model.name}, '
           f'{tokens} tokens</text>']
    for at, (layer, row) in enumerate(zip(shape.rows, rows)):
        y = top + at * cell
        if at % max(1, len(rows) // 16) == 0:
            out.append(f'<text x="{left - 8}" y="{y + cell}" text-anchor="end">{layer}</text>')
        for place, value in enumerate(row):
            shade = 255 - round(215 * value / most)
            out.append(f'<rect x="{left + place * cell}" y="{y}" width="{cell}" height="{cell}" '
                       f'fill="rgb({shade},{shade},255)"/>')
    out.append(f'<text x="{left}" y="{height - 12}">white: never; blue: {most} times</text></svg>')
    with open(file_name, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")


try:
    import matplotlib
except ImportError:
    if not target.endswith(".svg"):
        sys.exit(f"{target}: without matplotlib only an SVG can be drawn")
    draw_svg(target)
else:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(9, 0.4 * len(rows) + 2))
    image = axes.imshow(rows, aspect="auto", cmap="Blues", interpolation="nearest")
    axes.set_yticks(range(len(rows)), [str(layer) for layer in shape.rows])
    axes.set_xlabel("experts, sorted by use")
    axes.set_ylabel("layer")
    axes.set_title(f"{model.name}: {tokens} tokens")
    figure.colorbar(image, label="uses")
    figure.savefig(target, bbox_inches="tight")
print(f"written: {target}")
model.close()
