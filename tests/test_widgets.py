"""A chapter's own cell in a kernel, its sliders moved as a browser moves them: by messages."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient

from servesim import figs
from servesim.explore import explore
from tools import golden

PATIENCE_S = 60
CHAPTER = golden.ROOT / "chapters" / "continuous-batching.md"
STEPS = """
import servesim as ss
from servesim.stepper import stepper
stepper([ss.Request(i, 0, 20, 3) for i in range(2)], "naive")
"""


def cell_of_the_chapter() -> str:
    """Return the imports and the call of `explore` as they stand in the chapter."""
    cells = [cell.source for cell in golden.code_cells(jupytext.read(CHAPTER, fmt=golden.MYST))]
    (call,) = (source for source in cells if source.startswith("explore("))
    return f"{cells[0]}\n{call}"


class Widgets:
    """The widgets that a cell showed, as a notebook's front end knows them."""

    def __init__(self, client: NotebookClient) -> None:
        self.client = client

    def find(self, kind: str, **state: Any) -> str:
        """Return the id of the only widget of a kind in that state."""
        (found,) = (
            id
            for id, known in self.client.widget_state.items()
            if known["_model_name"] == f"{kind}Model" and state.items() <= known.items()
        )
        return found

    async def tell(self, widget: str, **data: Any) -> list[dict[str, Any]]:
        """Send what a browser would; return what the kernel answers until a picture comes."""
        session, answers = self.client.kc.session, []
        message = session.msg("comm_msg", {"comm_id": widget, "data": data})
        self.client.kc.shell_channel.send(message)
        while True:
            said = await self.client.kc.get_iopub_msg(timeout=PATIENCE_S)
            if said["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            if said["msg_type"] == "comm_msg":
                answers.append(said["content"]["data"].get("state", {}))
                if "<svg" in str(answers[-1].get("value")):
                    return answers

    async def picture_after(self, widget: str, **data: Any) -> str:
        answer = (await self.tell(widget, **data))[-1]["value"]
        return re.findall(r"(?s)<svg\b.*?</svg>", answer)[0]


@asynccontextmanager
async def executed(source: str) -> AsyncIterator[Widgets]:
    cell = nbformat.v4.new_code_cell(source)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    client = NotebookClient(notebook, timeout=PATIENCE_S)
    async with client.async_setup_kernel():
        await client.async_execute_cell(cell, 0)
        yield Widgets(client)


def test_the_chapter_s_sliders_draw_what_the_figure_draws() -> None:
    async def moved() -> tuple[str, str]:
        async with executed(cell_of_the_chapter()) as widgets:
            slots = widgets.find("IntSlider", description="Slots")
            policy = widgets.find("Dropdown", description="Policy")
            first = await widgets.picture_after(slots, method="update", state={"value": 9})
            return first, await widgets.picture_after(policy, method="update", state={"index": 1})

    start = {"rate": 4.0, "max_batch": 16, "policy": "continuous"}
    for shown, policy in zip(asyncio.run(moved()), ("continuous", "static"), strict=True):
        values: dict[str, Any] = {"rate": 4.0, "max_batch": 9, "policy": policy}
        drawn = explore(
            "servesim.figs:batching",
            rate=(1, 8, 0.5, 4),
            max_batch=(1, 64, 1, 16),
            policy=["continuous", "static"],
        ).figure(**values)
        assert shown == drawn.svg
        assert drawn.summary == figs.batching(**values, ghost=start).summary


def test_a_stepper_moves_by_its_buttons() -> None:
    async def pressed() -> tuple[str, str]:
        async with executed(STEPS) as widgets:
            later = widgets.find("Button", tooltip="Next step")
            click = {"method": "custom", "content": {"event": "click"}}
            one = await widgets.picture_after(later, **click)
            return one, await widgets.picture_after(later, **click)

    one, two = asyncio.run(pressed())
    assert one != two
