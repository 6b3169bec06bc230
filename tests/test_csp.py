"""The policy in each page: what the browser may load. The pages themselves run under it in
tests/test_browser.py."""

import base64
import hashlib

import pytest

import csp

PAGE = """<!DOCTYPE html>
<html><head lang="en">
<script src="a.js"></script><script>let a = "</p> & é";
</script></head><body><button onclick="go(&quot;x&quot;)">go</button></body></html>
"""


def hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def rules(page: str) -> dict[str, list[str]]:
    return {
        name: sources for name, *sources in (rule.split() for rule in csp.policy(page).split("; "))
    }


def test_only_what_stands_in_the_page_may_run() -> None:
    allowed = rules(PAGE)["script-src"]
    # A browser hashes the text of a script as it stands, and an attribute's after decoding.
    assert hashed('let a = "</p> & é";\n') in allowed
    assert hashed('go("x")') in allowed
    assert sum(source.startswith("'sha256-") for source in allowed) == 2
    assert not {"'unsafe-inline'", "'unsafe-eval'", "*", "https:", "data:"} & {*allowed}


def test_a_page_without_handlers_allows_none() -> None:
    assert "'unsafe-hashes'" in rules(PAGE)["script-src"]
    assert "'unsafe-hashes'" not in rules("<html><head></head></html>")["script-src"]


def test_no_rule_names_another_host() -> None:
    for name, sources in rules(PAGE).items():
        assert not [source for source in sources if "." in source or "//" in source], name
    assert rules(PAGE)["default-src"] == ["'self'", "file:"]


def test_the_policy_comes_before_everything_it_rules() -> None:
    now = csp.guarded(PAGE)
    assert now.index(csp.MARK) < now.index("<script")


def test_a_page_that_is_built_again_has_one_policy() -> None:
    once = csp.guarded(PAGE)
    changed = once.replace("let a", "let b")
    assert csp.guarded(once) == once
    assert csp.guarded(changed).count(csp.MARK) == 1
    assert hashed('let b = "</p> & é";\n') in csp.guarded(changed)


@pytest.mark.parametrize(
    ("place", "guarded"),
    [
        ("index.html", True),
        ("chapters/intro.html", True),
        ("lite/lab/index.html", False),
        ("_static/webpack-macros.html", False),
    ],
)
def test_the_book_s_pages_are_guarded_and_no_others(tmp_path, place: str, guarded: bool) -> None:
    page = tmp_path / place
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(PAGE, encoding="utf-8")
    csp.guard(tmp_path)
    assert (csp.MARK in page.read_text(encoding="utf-8")) == guarded
