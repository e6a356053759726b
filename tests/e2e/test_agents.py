#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents: the packages openai-agents and pydantic-ai lead their loops of tools with the server; aider edits a file.

Needs the program ($LONGSPEC_BIN, default build/release/longspec) and make_tiny_model beside it in tools/, which writes
a model of random weights: that a tool is called is asked for, what it is called with is held to its schema, and what is
said is noise. What aider is told is held to a grammar. The clients of clients.txt and aider.txt are installed into
build/; without them these tests fail.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import typing
import unittest

import client_packages

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools"))
from server_process import ServerProcess  # noqa: E402

BIN = os.environ.get("LONGSPEC_BIN", os.path.join(ROOT, "build/release/longspec"))
TOOL = os.path.join(os.path.dirname(BIN), "tools/make_tiny_model")
END = 2  # <|im_end|> of such models: texts come to their end soon
City = typing.Literal["Bonn", "Oslo"]
GRAMMARS = os.path.isdir(os.path.join(ROOT, "third_party/xgrammar-0.2.8"))


@unittest.skipUnless(os.access(BIN, os.X_OK) and os.access(TOOL, os.X_OK), "needs the program and make_tiny_model")
@unittest.skipUnless(GRAMMARS, "built without xgrammar")
class Agents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        client_packages.use()
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        model = os.path.join(cls.folder.name, "tiny.gguf")
        subprocess.run([TOOL, "--out", model, "--ctx", "4096", "--vocab", "1024"], check=True)
        cls.server = ServerProcess([BIN, "serve", "-m", model, "-t", "1", "--port", "0", "--no-progress",
                                    "--no-calibration-cache", "-n", "600", "--seed", "5", "-l", f"{END}+8"])
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__)

    def setUp(self):
        self.asked = []

    def weather(self, city):
        self.asked.append(city)
        return f"It rains in {city}."

    def openai_agent(self, kind):
        """What it said last, and what it was told before."""
        import agents
        import openai
        agents.set_tracing_disabled(True)

        @agents.function_tool
        def weather(city: City) -> str:
            """The weather of a city."""
            return self.weather(city)

        async def run():
            async with openai.AsyncOpenAI(base_url=self.server.url + "/v1", api_key="none") as client:
                model = getattr(agents, kind)(model="little", openai_client=client)
                agent = agents.Agent(name="forecaster", instructions="Be brief.", tools=[weather], model=model,
                                     model_settings=agents.ModelSettings(tool_choice="required",
                                                                         parallel_tool_calls=False))
                return await agents.Runner.run(agent, "Does it rain?", max_turns=4)

        return asyncio.run(run())

    # OpenAI's agents, by both of their APIs, call the tool once and are given its result.
    def test_openai_agents(self):
        for kind in ("OpenAIChatCompletionsModel", "OpenAIResponsesModel"):
            with self.subTest(kind):
                self.asked.clear()
                result = self.openai_agent(kind)
                self.assertEqual(len(self.asked), 1)
                self.assertIn(self.asked[0], typing.get_args(City))
                self.assertIsInstance(result.final_output, str)
                outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
                self.assertEqual(outputs, [f"It rains in {self.asked[0]}."])

    # So do those of Pydantic AI, whose final answer is a call of a tool, too.
    def test_pydantic_ai(self):
        import pydantic
        import pydantic_ai
        from pydantic_ai.capabilities import PrepareOutputTools
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        class Forecast(pydantic.BaseModel):
            city: City
            rains: bool

        provider = OpenAIProvider(base_url=self.server.url + "/v1", api_key="none")

        async def only_once(_, tool):
            return None if self.asked else tool

        async def afterwards(_, tools):
            return tools if self.asked else []

        agent = pydantic_ai.Agent(OpenAIChatModel("little", provider=provider), output_type=Forecast,
                                  capabilities=[PrepareOutputTools(afterwards)])

        @agent.tool_plain(prepare=only_once)
        def weather(city: City) -> str:
            """The weather of a city."""
            return self.weather(city)

        result = agent.run_sync("Does it rain?")
        self.assertEqual(len(self.asked), 1)
        self.assertIn(result.output.city, typing.get_args(City))
        kinds = [part.part_kind for message in result.all_messages() for part in message.parts]
        self.assertIn("tool-return", kinds)



BEFORE = "def twice(x):\n    return x\n"
AFTER = "def twice(x):\n    return 2 * x\n"
EDIT = f"""twice.py
<<<<<<< SEARCH
    return x
=======
    return 2 * x
>>>>>>> REPLACE"""


def fenced(edit):
    """As aider wants a change: the file's name, and what becomes what between three backticks."""
    name, block = edit.split("\n", 1)
    return f"{name}\n```python\n{block}\n```\n"


@unittest.skipUnless(os.access(BIN, os.X_OK) and os.access(TOOL, os.X_OK), "needs the program and make_tiny_model")
@unittest.skipUnless(GRAMMARS, "built without xgrammar")
@unittest.skipUnless((3, 10) <= sys.version_info < (3, 13), "aider runs on Python 3.10 to 3.12")
@unittest.skipIf("LONGSPEC_SKIP_SLOW" in os.environ, "slow, and the server sees requests like the others'")
class Aider(unittest.TestCase):
    def ask(self, folder, url):
        """Has aider change twice.py, and says what it printed."""
        path = os.path.join(folder, "twice.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(BEFORE)
        facts = os.path.join(folder, "facts.json")
        with open(facts, "w", encoding="utf-8") as file:  # which it would ask the internet for
            json.dump({"openai/little": {"max_input_tokens": 12000, "max_tokens": 4000, "litellm_provider": "openai",
                                         "mode": "chat"}}, file)
        command = [*client_packages.aider(), "--model", "openai/little", "--model-metadata-file", facts,
                   "--openai-api-base", url + "/v1", "--openai-api-key", "none", "--no-git", "--yes-always",
                   "--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--map-tokens", "0",
                   "--no-pretty", "--edit-format", "diff", "--message", "Make it return twice x.", path]
        done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=300, check=False, stdin=subprocess.DEVNULL,
                              env={**os.environ, "HOME": folder, "LITELLM_LOCAL_MODEL_COST_MAP": "True"})
        with open(path, encoding="utf-8") as file:
            return file.read(), done.stdout

    def test_edits_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "tiny.gguf")
            subprocess.run([TOOL, "--out", model, "--ctx", "16384", "--vocab", "1024"], check=True)
            grammar = "root ::= " + json.dumps(fenced(EDIT))
            with ServerProcess([BIN, "serve", "-m", model, "-t", "1", "--port", "0", "--no-progress",
                                "--no-calibration-cache", "--grammar", grammar]) as server:
                text, printed = self.ask(folder, server.url)
        self.assertEqual(text, AFTER, printed)


if __name__ == "__main__":
    unittest.main()
