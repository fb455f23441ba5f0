"""Accessibility of a server's page, for .ci/web: no script, no mouse, screen reader, dark mode, phone."""

from contextlib import ExitStack

from browser import Browser
from game import Failed
from web_page import HOSTILE_NAME, Page


def access(scene):
    """Without script, without a mouse, for a screen reader, in dark mode."""
    with scene.serve() as server, ExitStack() as players, Browser() as browser:
        page = Page(browser, server, scene.checks)
        alice, bob, carl = (players.enter_context(scene.player(server, name)) for name in ("Alice", "Bob", "Carl"))
        keyboard(page, alice)
        page.until_ranked(carl)
        page.visit("/")
        page.sees("the plots appear", lambda: page.count("#plots svg") > 0)
        for name, path in every_page(server, carl).items():
            page.visit(path)
            readable(page, path)
            scene.draw(page, f"desk-{name}")
        browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        for name, path in every_page(server, carl).items():
            page.visit(path)
            shade = browser.run("return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
            page.check(f"{path}: dark in dark mode", max(shade) < 64, shade)
            contrast(page, f"{path}, dark")
            scene.draw(page, f"dark-{name}")
        page.send("logout")
        page.quiet("without a mouse", "status of 404")
        without_script(page, bob)


def every_page(server, player):
    port = server.ports[0]
    return {"overview": "/", "session": f"/session/{port}", "player": f"/player/{port}/{player.peer}", "ban": f"/ban/{port}/{player.peer}", "ban-network": "/ban?target=127.0.0.0/8",
            "log": "/log", "bans": "/bans", "settings": "/settings", "session-settings": f"/settings?session={port}",
            "standings": "/standings", "login": "/login", "missing": "/nothing"}


def keyboard(page, alice):
    """Logs in and kicks a player with the keyboard only."""
    press, focus = page.browser.press, "return document.activeElement"
    page.visit("/login")
    page.check("the token field has the focus", page.browser.run(f"{focus}.id") == "token", page.browser.run(f"{focus}.outerHTML"))
    press(page.server.token, "Enter")
    page.sees("a key logs in", lambda: page.path() == "/" and page.row(alice))
    page.browser.click("#live-pause")
    page.check("automatic updates can be paused", page.text("#live-state") == "Paused", page.text("footer"))
    page.visit("/")
    page.browser.run("document.activeElement.blur()")
    press("Tab")
    page.check("the first Tab reaches the skip link", page.browser.run(f"{focus}.className") == "skip")
    tab_to(page, f"#go-{page.server.ports[0]}-{alice.peer}")
    press("Enter")
    page.sees("a key opens a player", lambda: page.text("h1") == "Alice")
    tab_to(page, "#kick [name=reason]")
    press("by keys", "Enter")
    page.sees("a key kicks the player", lambda: page.text("#note").startswith("✔"))
    alice.hears("by keys")


def tab_to(page, selector):
    """Presses Tab until an element has the focus. The focus must be visible on the way."""
    seen, unseen = [], []
    while not page.browser.run("return document.activeElement.matches(arguments[0])", selector):
        page.browser.press("Tab")
        html, outline = page.browser.run("return [document.activeElement.outerHTML.slice(0, 90), getComputedStyle(document.activeElement).outlineStyle]")
        seen.append(html)
        unseen += [html] if outline == "none" else []
        if len(seen) > 200:
            raise Failed(f"Tab does not reach {selector}: {seen[:60]}")
    page.check(f"Tab reaches {selector}, and the focus is visible", unseen == [], unseen)


NAMED = {"button", "image", "checkbox", "combobox", "heading", "link", "region", "searchbox", "spinbutton", "textbox", "navigation"}
LANDMARKS = {"banner", "main", "contentinfo", "navigation"}
CONTRAST = """
    const parse = text => { const part = text.match(/[\\d.]+/g).map(Number); return [...part.slice(0, 3), part[3] ?? 1]; };
    const light = ([r, g, b]) => [r, g, b].map(c => c / 255).map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = one => { for (; one; one = one.parentElement) {
        const color = parse(getComputedStyle(one).backgroundColor); if (color[3] > 0) return color; } return [255, 255, 255, 1]; };
    return [...document.body.querySelectorAll("*")]
        .filter(one => [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()) && one.checkVisibility() && !one.matches("script"))
        .map(one => { const style = getComputedStyle(one);
            const [a, b] = [light(parse(one.closest("svg") ? style.fill : style.color)), light(behind(one))].sort((x, y) => y - x);
            return [(a + 0.05) / (b + 0.05), one.outerHTML.slice(0, 80)]; })
        .filter(([ratio]) => ratio < 4.5);"""


def readable(page, path):
    """Checks what a screen reader gets: names, landmarks, headings, the language."""
    nodes = page.browser.devtools("Accessibility.getFullAXTree")["nodes"]
    nodes = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")]
    nameless = [role for role, name in nodes if role in NAMED and not name.strip()]
    page.check(f"{path}: every control has a name", nameless == [], nameless)
    roles = {role for role, _ in nodes}
    page.check(f"{path}: landmarks", LANDMARKS <= roles, LANDMARKS - roles)
    levels = page.browser.run("return [...document.querySelectorAll('h1, h2, h3, h4')].map(one => Number(one.tagName[1]))")
    in_order = all(after - before <= 1 for before, after in zip(levels, levels[1:]))
    page.check(f"{path}: headings in order", levels[:1] == [1] and levels.count(1) == 1 and in_order, levels)
    unlabelled = page.browser.run("return [...document.querySelectorAll('input:not([type=hidden]), textarea, select')]"
                                  ".filter(one => one.labels.length === 0).map(one => one.outerHTML)")
    page.check(f"{path}: every field has a label", unlabelled == [], unlabelled)
    page.check(f"{path}: the language is set", page.browser.run("return document.documentElement.lang") == "en")
    doubled = page.browser.run("const ids = [...document.querySelectorAll('[id]')].map(one => one.id);"
                               "return ids.filter((id, at) => ids.indexOf(id) !== at)")
    page.check(f"{path}: ids are unique", doubled == [], doubled)
    contrast(page, path)


def contrast(page, path):
    faint = page.browser.run(CONTRAST)
    page.check(f"{path}: text has enough contrast", faint == [], faint[:5])


def without_script(page, bob):
    page.browser.devtools("Emulation.setScriptExecutionDisabled", value=True)
    page.log_in()
    page.check("without script the page explains how to update it", "Reload the page" in page.text("#live-state"), page.text("footer"))
    page.go_to_player(bob)
    page.does("without script a player can be kicked", "Bob", "kick", reason="no script")
    bob.hears("no script")
    bob.is_thrown_out()
    page.send("logout")
    page.check("without script an operator can log out", page.path() == "/login", page.path())


SPILLS = """
    return [...document.querySelectorAll("main *")].filter(one => one.checkVisibility() && !one.closest("svg, .scroll *, pre, .skip")
        && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== "inline").map(one => one.outerHTML.slice(0, 80));"""


def phone(scene):
    with scene.serve() as server, ExitStack() as players, Browser(390, 844, mobile=True) as browser:
        page = Page(browser, server, scene.checks)
        trap = players.enter_context(scene.player(server, HOSTILE_NAME))
        players.enter_context(scene.player(server, "A-name-without-any-blank-in-it"))
        trap.says("A line of chat that has so many words in it that no phone can show all of them in one line of its own")
        trap.hears("A line of chat")
        page.log_in()
        page.go_to_player(trap)
        page.until_ranked(trap)
        page.visit("/")
        page.sees("the plots appear", lambda: page.count("#plots svg") > 0)
        for name, path in every_page(server, trap).items():
            page.visit(path)
            wide = browser.run("return document.documentElement.scrollWidth")
            page.check(f"{path}: the page fits the width of a phone", wide <= 390, wide)
            spills = browser.run(SPILLS)
            page.check(f"{path}: no text overflows its box", spills == [], spills)
            small = browser.run("return [...document.querySelectorAll('button, input:not([type=hidden]), select, textarea, nav a')]"
                                ".filter(one => one.checkVisibility() && one.getBoundingClientRect().height < 24).map(one => one.outerHTML.slice(0, 80))")
            page.check(f"{path}: controls are large enough for a finger", small == [], small)
            scene.draw(page, f"phone-{name}")
        page.go_to_player(trap)
        page.does("a phone can kick", "", "kick", reason="by thumb")
        trap.hears("by thumb")
        page.quiet("a phone", "status of 404")
