#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains drafts on another machine that is reached by a command, for as many minutes as it is lent: sends what is
needed in pieces, runs the steps of a plan there, and brings back what they made, in slices.

    tools/train_elsewhere.py plan.json            the whole plan, by the plan's command
    tools/train_elsewhere.py plan.json --next     only packs the next job into a folder; what to do with it is printed
    tools/train_elsewhere.py plan.json --came-back FOLDER    takes what a job left there in $OUT
    tools/train_elsewhere.py plan.json --again    begins the next round: the steps are run once more

A plan is JSON:

    "command"    what runs `sh go.sh` in a copy of {folder} on the other machine, for {seconds} at most, and leaves in
                 {out} what is there in $OUT (where that is not set: in out/). An example, by ssh:
                 "tar c -C {folder} . | ssh box 'rm -rf j && mkdir j && cd j && tar x &&
                  timeout {seconds} sh go.sh >&2; tar c -C out .' | tar x -C {out}"
    "store"      a folder of the other machine whose files stay there from one command to the next
    "send"       what the steps need: name there -> file or folder here; "path?" may be missing
    "steps"      in order: {"name", "run": a line for sh, which stands in the store, or several in a list, "seconds":
                 when it is interrupted, "bring": files of the store}. "{round}" in "run" is 1, 2, ...
    "most_sent", "most_seconds"    of a command: bytes (60,000,000) and seconds (540)
    "most_files", "most_bytes"     that a command brings back: files (8), and bytes of each (16,000,000)

What came back lies in FOLDER/came-back, FOLDER being the plan's name without its ending; a next round may send it. On
a machine that has lost what was there, all is sent again, and steps whose results did not come back are run again.
Interrupted steps (Ctrl-C is sent to them) count as done: longspec-train and longspec-write keep what is complete.
"""

import argparse
import hashlib
import json
import os
from pathlib import Path
import shlex
import shutil
import subprocess
import sys
import tarfile

BLOCK = 1 << 20
GO = r"""set -eu
here=$PWD
out=${OUT:-$here/out}
mkdir -p "$out" "$STORE/pieces" "$STORE/back"
[ -e "$STORE/machine" ] || od -An -N8 -tx8 /dev/urandom | tr -d ' \n' >"$STORE/machine"
for piece in "$here"/pieces/*; do
  [ -e "$piece" ] || continue
  name=${piece##*/}
  [ "$(sha256sum <"$piece" | cut -c 1-16)" = "${name##*.}" ] && cp "$piece" "$STORE/pieces/$name"
done
finish() {
  cp "$STORE/machine" "$out/machine"
  ls "$STORE/pieces" >"$out/pieces"
}
# Ends here where this machine has not all that was sent to another one: need PIECE...
need() {
  for piece in "$@"; do
    [ -e "$STORE/pieces/$piece" ] || { finish; exit 0; }
  done
}
# Runs a file's pieces together, once: unpack NAME PIECE...
unpack() {
  name=$1
  shift
  [ ! -e "$STORE/unpacked.$name" ] || return 0
  (cd "$STORE/pieces" && cat "$@") | tar x -C "$STORE"
  touch "$STORE/unpacked.$name"
}
# step NAME SECONDS LINE
step() {
  echo "$1 begins" >&2
  code=0
  (cd "$STORE" && timeout -k 20 -s INT "$2" sh -c "$3") || code=$?
  echo "$1 $code" >>"$out/steps"
}
# bring NAME BYTES: cuts a file into slices
bring() {
  [ -e "$STORE/$1" ] || return 0
  name=$(echo "$1" | tr / ,)
  rm -f "$STORE/back/$name".[0-9][0-9][0-9][0-9]
  split -b "$2" -d -a 4 "$STORE/$1" "$STORE/back/$name."
}
# Some slices that are not here yet: slices FILES HAVE
slices() {
  left=$1
  for slice in "$STORE"/back/*; do
    [ -e "$slice" ] || continue
    sum=$(sha256sum <"$slice" | cut -c 1-16)
    echo "${slice##*/} $sum" >>"$out/slices"
    if [ "$left" -gt 0 ] && ! grep -q "^${slice##*/} $sum\$" "$2"; then
      cp "$slice" "$out/${slice##*/}"
      left=$((left - 1))
    fi
  done
}
"""


class PlanError(Exception):
    pass


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


class Plan:
    def __init__(self, path):
        self.path = Path(path)
        try:
            self.fields = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise PlanError(f"{path}: {error}") from error
        unknown = set(self.fields) - {"command", "store", "send", "steps", "most_sent", "most_seconds", "most_files",
                                      "most_bytes"}
        if unknown:
            raise PlanError(f"{path}: unknown key '{sorted(unknown)[0]}'")
        for key in ("store", "send", "steps"):
            if key not in self.fields:
                raise PlanError(f"{path}: '{key}' is missing")
        for step in self.steps:
            for key in ("name", "run", "seconds"):
                if key not in step:
                    raise PlanError(f"{path}: a step lacks '{key}'")
            if step["seconds"] > self.most_seconds:
                raise PlanError(f"{path}: step {step['name']} takes more seconds than a command may")

    steps = property(lambda self: self.fields["steps"])
    store = property(lambda self: self.fields["store"])
    command = property(lambda self: self.fields.get("command"))
    most_sent = property(lambda self: self.fields.get("most_sent", 60_000_000))
    most_seconds = property(lambda self: self.fields.get("most_seconds", 540))
    most_files = property(lambda self: self.fields.get("most_files", 8))
    most_bytes = property(lambda self: self.fields.get("most_bytes", 16_000_000))

    def sources(self):
        """(name there, path here) of what is sent."""
        for name, source in self.fields["send"].items():
            path = Path(source.removesuffix("?"))
            if path.exists():
                yield name, path
            elif not source.endswith("?"):
                raise PlanError(f"{path}: is to be sent and is not there")


class Training:
    """Where a plan stands: what is known of the other machine, and what came back, in a folder beside the plan."""

    def __init__(self, plan, folder):
        self.plan, self.folder = plan, folder
        folder.mkdir(parents=True, exist_ok=True)
        self.file = folder / "state.json"
        self.state = {"round": 1, "machine": "", "there": [], "done": [], "have": [], "whole": True, "packed": {},
                      "begun": []}
        if self.file.exists():
            self.state.update(json.loads(self.file.read_text(encoding="utf-8")))

    def save(self):
        temporary = self.file.with_suffix(".tmp")
        temporary.write_text(json.dumps(self.state), encoding="utf-8")
        temporary.replace(self.file)

    def again(self):
        self.state.update(round=self.state["round"] + 1, done=[], have=[], whole=True)
        shutil.rmtree(self.folder / "slices", ignore_errors=True)
        self.save()

    def pack(self):
        """Cuts everything that is sent into pieces, each once: name there -> names of its pieces. What came back in a
        round is sent in the next one at the earliest."""
        begun = [self.state["round"], self.plan.fields["send"]]
        if self.state["begun"] == begun:
            return {name: known["pieces"] for name, known in self.state["packed"].items()}
        pieces = self.folder / "pieces"
        pieces.mkdir(exist_ok=True)
        packed = {}
        for name, path in self.plan.sources():
            files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
            stamp = [self.plan.most_sent, *(f"{f} {f.stat().st_size} {f.stat().st_mtime_ns}" for f in files)]
            known = self.state["packed"].get(name)
            if known is None or known["stamp"] != stamp:
                known = {"stamp": stamp, "pieces": list(self.cut(name, path, pieces))}
                self.state["packed"][name] = known
            packed[name] = known["pieces"]
        self.state["packed"] = {name: self.state["packed"][name] for name in packed}
        self.state["begun"] = begun
        self.save()
        return packed

    def cut(self, name, path, folder):
        archive = self.folder / "archive.tar"
        with tarfile.open(archive, "w") as tar:
            tar.add(path, arcname=name)
        with open(archive, "rb") as file:
            index = 0
            while data := file.read(self.plan.most_sent):
                piece = f"{name.replace('/', ',')}.{index:04}.{digest(data)}"
                (folder / piece).write_bytes(data)
                yield piece
                index += 1
        archive.unlink()

    def next_job(self):
        """A folder with go.sh and pieces; None if all is done. Says what it is about."""
        packed = self.pack()
        there = set(self.state["there"])
        missing = [piece for pieces in packed.values() for piece in pieces if piece not in there]
        steps = [step for step in self.plan.steps if step["name"] not in self.state["done"]]
        if not missing and not steps and self.state["whole"]:
            return None
        job = self.folder / "job"
        shutil.rmtree(job, ignore_errors=True)
        (job / "pieces").mkdir(parents=True)
        left = self.plan.most_sent
        sent = []
        for piece in missing:
            source = self.folder / "pieces" / piece
            if source.stat().st_size > left:
                break
            left -= source.stat().st_size
            os.link(source, job / "pieces" / piece)
            sent.append(piece)
        lines = [f"STORE={shlex.quote(self.plan.store)}", GO]
        run = []
        if len(sent) == len(missing):
            lines.append(shlex.join(["need", *(piece for pieces in packed.values() for piece in pieces)]))
            for name, pieces in packed.items():
                version = digest("".join(pieces).encode())
                lines.append(shlex.join(["unpack", f"{name.replace('/', ',')}.{version}", *pieces]))
            seconds = self.plan.most_seconds
            for step in steps:
                if step["seconds"] > seconds:
                    break
                seconds -= step["seconds"]
                text = step["run"] if isinstance(step["run"], str) else "\n".join(step["run"])
                text = text.replace("{round}", str(self.state["round"]))
                lines.append(shlex.join(["step", step["name"], str(step["seconds"]), text]))
                lines += [shlex.join(["bring", name, str(self.plan.most_bytes)]) for name in step.get("bring", ())]
                run.append(step["name"])
        (job / "have").write_text("".join(line + "\n" for line in self.state["have"]), encoding="utf-8")
        lines += [f'slices {self.plan.most_files - 4} "$here/have"', "finish", ""]
        (job / "go.sh").write_text("\n".join(lines), encoding="utf-8")
        print(f"{len(sent)} of {len(missing)} missing pieces" + (f"; runs {', '.join(run)}" if run else ""), flush=True)
        return job

    def take(self, out):
        """What a job left in $OUT."""
        read = {name: (out / name).read_text(encoding="utf-8").split("\n") if (out / name).exists() else []
                for name in ("machine", "pieces", "steps", "slices")}
        if not read["machine"]:
            raise PlanError(f"{out}: nothing of a job that ended; it is tried again")
        machine = read["machine"][0]
        if self.state["machine"] not in ("", machine) and not self.state["whole"]:
            print("another machine: what it had not brought back is made again", flush=True)
            self.state.update(done=[], have=[])
            shutil.rmtree(self.folder / "slices", ignore_errors=True)
        self.state.update(machine=machine, there=[name for name in read["pieces"] if name])
        for line in filter(None, read["steps"]):
            name, code = line.split()
            print(f"{name}: exit status {code}", flush=True)
            if code not in ("0", "124", "130"):
                self.save()
                raise PlanError(f"step {name} failed")
            self.state["done"].append(name)
        slices = self.folder / "slices"
        slices.mkdir(exist_ok=True)
        all_slices = [line for line in read["slices"] if line]
        for line in all_slices:
            name, checksum = line.split()
            if (out / name).exists() and digest((out / name).read_bytes()) == checksum:
                shutil.copyfile(out / name, slices / name)
                self.state["have"] = [have for have in self.state["have"] if have.split()[0] != name] + [line]
        self.state["whole"] = set(all_slices) <= set(self.state["have"])
        if self.state["whole"]:
            self.join(all_slices)
        self.save()

    def join(self, all_slices):
        files = {}
        for line in all_slices:
            name = line.split()[0]
            files.setdefault(name.rsplit(".", 1)[0], []).append(name)
        for name, parts in files.items():
            path = self.folder / "came-back" / name.replace(",", "/")
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(path.name + ".tmp")
            with open(temporary, "wb") as joined:
                for part in sorted(parts):
                    with open(self.folder / "slices" / part, "rb") as file:
                        shutil.copyfileobj(file, joined, BLOCK)
            temporary.replace(path)
            print(f"{path}: came back", flush=True)


def run(plan, training):
    if not plan.command:
        raise PlanError(f"{plan.path}: has no 'command'; --next packs a job to be run otherwise")
    failures = 0
    while job := training.next_job():
        out = training.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        command = plan.command.format(folder=job, out=out, seconds=plan.most_seconds)
        status = subprocess.run(command, shell=True, check=False).returncode
        try:
            training.take(out)
            failures = 0
        except PlanError:
            failures += 1
            if status == 0 or failures == 3:
                raise
            print(f"the command ended with {status}; it is tried again", file=sys.stderr, flush=True)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--next", action="store_true")
    what.add_argument("--came-back", metavar="FOLDER")
    what.add_argument("--again", action="store_true")
    options = parser.parse_args(arguments)
    try:
        plan = Plan(options.plan)
        training = Training(plan, Path(options.plan).with_suffix("").absolute())
        if options.again:
            training.again()
        elif options.came_back:
            training.take(Path(options.came_back))
        elif options.next:
            job = training.next_job()
            how = f"{job}: run 'sh go.sh' in a copy of it, then give --came-back what is in $OUT"
            print(how if job else "all is done")
        else:
            run(plan, training)
    except PlanError as error:
        print(f"train_elsewhere: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
