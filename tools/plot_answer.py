#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws how one answer grows: tokens over seconds, one line a method, as SVG.

  tools/plot_answer.py --tasks tasks.jsonl --source code_completion-004 --llama-server LLAMA_SERVER --out answer.svg

The task is one of /completion that tools/make_tasks.py wrote. Each method of --methods (tools/compare_tasks.py) is a
server that knows the prompt, and streams the answer at temperature 0; one runs at a time.
"""

import argparse
import json
from pathlib import Path
import sys
import tempfile
import time
import urllib.request
from xml.sax.saxutils import escape

import compare_tasks
from compare_tasks import Server, methods_of
from compare_llamacpp import check_model, Failure, run_tool

WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 750, 360, 52, 40, 16, 180
COLOURS = {"longspec": ("#1f6feb", "#8bb8f8"), "llama-server": ("#b35900", "#e0a060")}


def streamed(server, prompt, tokens):
    """[(seconds, tokens so far)] of an answer."""
    body = {"prompt": prompt, "n_predict": tokens, "temperature": 0, "stream": True, "return_tokens": True,
            "cache_prompt": True, "id_slot": 0}
    request = urllib.request.Request(server.url + "/completion", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    began, points = time.monotonic(), [(0.0, 0)]
    with urllib.request.urlopen(request) as response:
        for line in response:
            if line.startswith(b"data: {"):
                new = len(json.loads(line[6:]).get("tokens", []))
                if new:
                    points.append((time.monotonic() - began, points[-1][1] + new))
    return points


def find_prompt(options):
    tasks = [json.loads(line) for line in options.tasks.read_text(encoding="utf-8").splitlines()]
    found = [task["body"]["prompt"] for task in tasks if task["source"] == options.source and "prompt" in task["body"]]
    if not found:
        raise Failure(f"--source {options.source}: {options.tasks} has no task of /completion from it")
    return found[0]


def measure(options):
    prompt, lines = find_prompt(options), {}
    for method in methods_of(options):
        with tempfile.TemporaryDirectory() as slots:
            server = Server(method, options, slots)
            with server.process:
                server.ask({"body": {"prompt": prompt}}, 4, 0)
                lines[f"{method.side} {method.name}"] = streamed(server, prompt, options.answer)
    return lines


def steps_of(span, most):
    """Round numbers from 0 on, at most so many."""
    step = next(size * factor for factor in (1, 10, 100, 1000) for size in (1, 2, 5) if span / (size * factor) <= most)
    return range(0, int(span) + 1, step)


def draw(lines):
    """`lines`: points by name. A line's name and speed stand where it ends."""
    seconds = max(points[-1][0] for points in lines.values())
    tokens = max(points[-1][1] for points in lines.values())
    x = lambda at: LEFT + at / seconds * (WIDTH - LEFT - RIGHT)
    y = lambda n: HEIGHT - BOTTOM - n / tokens * (HEIGHT - BOTTOM - TOP)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="sans-serif" font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for at in steps_of(seconds, 8):
        out.append(f'<text x="{x(at):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle" fill="#555">{at} s</text>')
    for n in steps_of(tokens, 6):
        out += [f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(n):.1f}" y2="{y(n):.1f}" stroke="#ddd"/>',
                f'<text x="{LEFT - 8}" y="{y(n) + 4:.1f}" text-anchor="end" fill="#555">{n}</text>']
    drawn = {side: 0 for side in COLOURS}
    for number, (name, points) in enumerate(lines.items()):
        side = name.split(" ")[0]
        colour = COLOURS[side][min(drawn[side], 1)] if len(lines) > 1 else COLOURS[side][0]
        drawn[side] += 1
        path = " ".join(f"{x(at):.1f},{y(n):.1f}" for at, n in points)
        last = points[-1]
        out += [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
                f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 20 + 34 * number}" fill="{colour}" font-weight="bold">'
                f'{escape(name)}</text>',
                f'<text x="{WIDTH - RIGHT + 10}" y="{TOP + 34 + 34 * number}" fill="{colour}">'
                f'{last[1] / last[0]:.1f} tokens/s</text>']
    out.append(f'<text x="{LEFT}" y="{HEIGHT - 6}" fill="#555">tokens of the answer over seconds, from the request on'
               '</text></svg>')
    return "\n".join(out) + "\n"


def make_report(options):
    check_model(options)
    lines = measure(options)
    options.svg.write_text(draw(lines), encoding="utf-8")
    return "".join(f"{name}: {points[-1][1]} tokens in {points[-1][0]:.2f} s\n" for name, points in lines.items())


def parse(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    compare_tasks.add_programs(parser)
    parser.add_argument("--source", required=True, help="of the task")
    parser.add_argument("--answer", type=int, default=192, help="tokens of the answer (default: 192)")
    parser.add_argument("--out", dest="svg", type=Path, required=True, help="the picture")
    parser.set_defaults(out=None)  # run_tool's file
    return parser.parse_args(argv)


def main(argv=None):
    return run_tool("plot_answer", parse(argv), make_report)


if __name__ == "__main__":
    sys.exit(main())
