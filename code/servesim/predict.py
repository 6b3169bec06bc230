"""Questions to guess at before a run: each choice, once taken, says what speaks for or against it.

A choice is a native disclosure: it needs no script, works by keyboard, and tells nothing before
the reader has committed to it. Jupyter, JupyterLite and the page show the same HTML; on paper
there is the list, and below it what belongs to each choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_lowercase

from . import checks
from .errors import InputError, brief
from .svg import element, prose

__all__ = ["Prediction", "predict"]

_RIGHT, _WRONG = "Yes.", "No."


class Prediction:
    """A question with choices; what `predict` returns. Display it as a cell's last value."""

    def __init__(self, question: str, choices: Mapping[str, str], answer: str) -> None:
        checks.text(question=question, answer=answer)
        checks.instance(Mapping, choices=choices)
        for choice, said in choices.items():
            checks.text(**{"a choice in choices": choice, "what choices say about it": said})
        self.question = question.strip()
        self.choices = {text.strip(): said.strip() for text, said in choices.items()}
        letters = ascii_lowercase[: len(self.choices)]
        if not self.question:
            raise InputError("predict: the question is empty; write one")
        if not 2 <= len(self.choices) <= len(ascii_lowercase):
            raise InputError(f"predict: give from 2 to 26 choices, not {len(self.choices)}")
        for text, said in self.choices.items():
            if not text or not said:
                raise InputError(
                    f"predict: choice {text!r} needs a text and something to say about it"
                )
        if answer not in list(letters):
            known = ", ".join(letters)
            raise InputError(f"predict: the answer must be one of {known}: {brief(answer)}")
        self.answer = answer

    def feedback(self, choice: str) -> str:
        """Return what a reader is told who takes a choice: ``"a"``, ``"b"`` and so on.

        Raises
        ------
        InputError
            If there is no such choice.
        """
        for letter, _, said in self._rows():
            if letter == choice:
                return said
        raise InputError(f"predict: there is no choice {brief(choice)}")

    def _rows(self) -> list[tuple[str, str, str]]:
        """Return letter, text and feedback of each choice."""
        rows = []
        for letter, (text, said) in zip(ascii_lowercase, self.choices.items(), strict=False):
            rows.append((letter, text, f"{_RIGHT if letter == self.answer else _WRONG} {said}"))
        return rows

    def to_html(self) -> str:
        """Return the question, and a closed disclosure for each choice."""
        parts = [element("p", element("strong", prose(self.question)), class_="predict-question")]
        for letter, text, said in self._rows():
            verdict, _, why = said.partition(" ")
            parts.append(
                element(
                    "details",
                    element("summary", f"({letter}) {prose(text)}"),
                    element("p", f"{element('strong', verdict)} {prose(why)}"),
                    class_="predict-choice",
                )
            )
        return element(
            "div",
            "\n".join(["", *parts, ""]),
            class_="predict",
            role="group",
            aria_label=f"Predict: {_plain(self.question)}",
        )

    def to_markdown(self) -> str:
        """Return the choices as a list, and below it what to say about each."""
        asked = [f"- ({letter}) {text}" for letter, text, _ in self._rows()]
        said = " ".join(f"({letter}) {said}" for letter, _, said in self._rows())
        return "\n".join([f"**{self.question}**", "", *asked, "", f"*Answer.* {said}"])

    def __repr__(self) -> str:
        asked = [f"({letter}) {_plain(text)}" for letter, text, _ in self._rows()]
        return "\n".join([_plain(self.question), *asked, "(.feedback('a') tells about a choice)"])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return {
            "text/html": self.to_html(),
            "text/markdown": self.to_markdown(),
            "text/plain": repr(self),
        }


def _plain(text: str) -> str:
    return text.replace("`", "")


def predict(question: str, choices: Mapping[str, str], *, answer: str) -> Prediction:
    """Ask a question whose choices answer on the spot.

    Parameters
    ----------
    question : str
        One sentence. Code stands in backticks, here and in the choices.
    choices : mapping of str to str
        What the reader can choose, and what to say to one who chose it: why it is right, or which
        thought led astray. Every number in it is computed by the page's build.
    answer : str
        Letter of the right choice: ``"a"`` is the first.

    Returns
    -------
    Prediction

    Raises
    ------
    InputError
        If a text is missing or `answer` names no choice.
    """
    return Prediction(question, choices, answer)
