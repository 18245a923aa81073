#!/usr/bin/env python3
"""web.py figures|odd ADDRESS FOLDER: checks the page of `netvale web` with a browser. See web.sh."""

import os
import sys
import time

from browser import Browser

SIZES = {"desktop": (1280, 800, False), "phone": (390, 844, True)}
ROWS = "[...document.querySelectorAll('.ports tbody tr')]"
# The text of a cell in a port's row, by its column.
CELL = ROWS + ".find((row) => row.dataset.port === {port!r})?.children[{column}].textContent"
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def ok(text):
    print(f"ok: {text}", flush=True)


def check(what, condition, got=None):
    if not condition:
        raise AssertionError(f"{what}: {got}")
    ok(what)


def enter(browser, address):
    browser.open(address)
    browser.until("the page is live", "document.getElementById('status').textContent === 'live'")
    browser.until("it has rates", f"{ROWS}.length > 0 && document.querySelector('.worker') !== null")


def press(browser, selector):
    browser.run(f"document.querySelector({selector!r}).dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")


def hands(browser):
    return browser.run("[...document.querySelectorAll('.hand')].map((hand) => hand.style.transform).join()")


def picture(browser, name):
    folder = os.environ.get("NETVALE_PICTURES")
    if folder:
        browser.picture(os.path.join(folder, f"{name}.png"))


def silent(browser, address):
    check("the console is silent", not browser.complaints, browser.complaints)
    own, token = address.split("#")[0], address.split("=")[1]
    foreign = [url for url, _ in browser.requests if not url.startswith((own, "blob:" + own, "about:"))]
    check("nothing is asked of others", not foreign, foreign)
    check("the token is in no address", not [url for url, _ in browser.requests if token in url])
    kept = browser.run("location.href + document.cookie + localStorage.length")
    check("nor kept beyond the tab", token not in kept and kept.endswith("0"), kept)


def figures(browser, address, folder):
    for name, (width, height, is_phone) in SIZES.items():
        browser.size(width, height, is_phone)
        enter(browser, address)
        look(browser, name)
    silent(browser, address)
    scheme = "getComputedStyle(document.body).backgroundColor"
    light = browser.run(scheme)
    browser.prefer("dark")
    check("there is a dark scheme", browser.run(scheme) != light, light)
    capture(browser, folder)
    behind(browser, address)


def look(browser, name):
    rate = CELL.format(port="vale0:rx", column=5)
    browser.until(f"{name}: rates are there", f"/[1-9]/.test({rate} ?? '')")
    # A steady rate may be written with the same value again.
    browser.run(f"{rate.replace('?', '')} = ''")
    browser.until(f"{name}: they are written again and again", f"/[1-9]/.test({rate} ?? '')")
    browser.until(f"{name}: so do lines", "document.querySelectorAll('.wire.moves').length >= 2")
    browser.until(f"{name}: drops are there", f"/[1-9]/.test({CELL.format(port='vale0:slow', column=7)})")
    reasons = browser.until(f"{name}: with their reasons", "document.querySelector('#drops [data-reason=no-room]')?.textContent")
    check(f"{name}: rates, drops and their reasons move", "vale0:" in reasons, reasons)
    check(f"{name}: workers have their load", browser.run("[...document.querySelectorAll('.load i')].some((part) => parseFloat(part.style.width) > 0)"))
    for port in ("vale0:rx", "vale1:p1", "vale1:guest"):
        check(f"{name}: {port} is drawn", browser.run(f"document.querySelector('g[data-port=\"{port}\"]') !== null"))
    press(browser, 'g[data-port="vale0:rx"]')
    browser.until(f"{name}: a port's rings are drawn", "document.querySelectorAll('.ring svg .arc').length >= 6")
    at = hands(browser)
    browser.until(f"{name}: heads, curs and tails move", f"[...document.querySelectorAll('.hand')].map((hand) => hand.style.transform).join() !== {at!r}")
    shown = browser.run("[...document.querySelectorAll('[data-ring=\"out 0\"] [data-index]')].map((one) => one.dataset.index + one.textContent).join()")
    check(f"{name}: with their indices", all(index in shown for index in ("head", "cur", "tail", "hwcur", "hwtail")), shown)
    picture(browser, f"{name}-rings")
    check(f"{name}: who sends nothing is not timed", "How long frames take" not in browser.run("document.getElementById('details').textContent"))
    press(browser, '.ports tr[data-port="vale0:tx"]')
    timed = browser.until(f"{name}: frames that are timed", "document.querySelectorAll('.histogram .share').length > 0 && document.getElementById('details').textContent")
    check(f"{name}: and what they take", "99 % within" in timed and "frames timed recently" in timed, timed)
    shares = browser.run("[...document.querySelectorAll('.histogram .share')].map((bar) => parseFloat(bar.style.width)).reduce((a, b) => a + b)")
    check(f"{name}: parts are parts of all", 99 < shares < 101, shares)
    picture(browser, f"{name}-latency")
    press(browser, '.ports tr[data-port="vale0:slow"]')
    browser.until(f"{name}: another port's filter", "document.getElementById('details').textContent.includes('udp port 53')")
    check(f"{name}: the address has the port", "#port=" in browser.run("location.href"), browser.run("location.href"))
    key = "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'KEY', bubbles: true}))"
    browser.run(key.replace("KEY", "/"))
    check(f"{name}: / goes to the filter", browser.run("document.activeElement.id") == "filter")
    browser.run(key.replace("KEY", "Escape"))
    check(f"{name}: Escape closes details", browser.run("document.getElementById('details').hidden && !location.hash"))
    browser.run("location.hash = 'port=vale0%3Aslow'")
    browser.until(f"{name}: such an address opens the port", "!document.getElementById('details').hidden && document.getElementById('details').textContent.includes('udp port 53')")
    press(browser, "#details .title button")
    check(f"{name}: details close", browser.run("document.getElementById('details').hidden"))
    check(f"{name}: nothing is wider than the screen", browser.run(WIDE) == 0, browser.run(WIDE))
    browser.run("scrollTo(0, 0)")
    picture(browser, name)


def capture(browser, folder):
    downloads = os.path.join(folder, "downloads")
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=downloads)
    press(browser, '.ports tr[data-port="vale0:tx"]')
    browser.run("document.querySelector('[name=frames]').value = 200")
    browser.run("document.querySelector('.capture').requestSubmit()")
    browser.until("a capture is saved", "document.querySelector('.capture [role=status]').textContent.startsWith('saved as ')", 40)
    end = time.monotonic() + 20
    while not (os.path.isdir(downloads) and any(name.endswith(".pcapng") for name in os.listdir(downloads))):
        check("its file is there", time.monotonic() < end)
        time.sleep(0.05)
    ok("a capture is downloaded")


def behind(browser, address):
    """Without the token, the page shows a form for it; a paused page stays as it is."""
    press(browser, "#pause")
    browser.until("it pauses", "document.getElementById('status').textContent === 'paused'")
    browser.run("sessionStorage.clear()")
    browser.open(address.split("#")[0])
    browser.until("it asks for the token", "!document.getElementById('login').hidden && document.getElementById('main').hidden")
    browser.run(f"document.getElementById('token').value = {'x' * 20!r}; document.getElementById('login').requestSubmit()")
    browser.until("a wrong one is refused", "document.getElementById('login-error').textContent !== ''")
    browser.run(f"document.getElementById('token').value = {address.split('=')[1]!r}; document.getElementById('login').requestSubmit()")
    browser.until("the right one is taken", "document.getElementById('status').textContent === 'live'")
    ok("a form asks for the token")


def odd(browser, address, _folder):
    for name, (width, height, is_phone) in SIZES.items():
        browser.size(width, height, is_phone)
        enter(browser, address)
        browser.until(f"{name}: all are there", f"{ROWS}.length === 5 && document.querySelectorAll('g.port').length === 5")
        browser.until(f"{name}: a flow of an odd gateway", "[...document.querySelectorAll('#flows td')].some((cell) => cell.textContent.includes('<img src=x'))")
        browser.until(f"{name}: each gateway has its place", "document.querySelectorAll('#flows [data-gateway]').length === 5")
        browser.until(f"{name}: those with other types than a flow's do not answer", "document.querySelectorAll('#flows p.bad').length === 3")
        browser.until(f"{name}: a long list is cut", "document.querySelectorAll('#flows tbody tr').length === 201")
        browser.until(f"{name}: drops for an odd reason", "document.querySelectorAll('#drops tbody tr').length === 2")
        for at in range(5):
            browser.run(f"document.querySelectorAll('g.port')[{at}].dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
            browser.until(f"{name}: details of number {at}", "document.querySelectorAll('#details .notes li').length === 2 && document.querySelectorAll('.hand').length === 3")
            browser.until(f"{name}: its rule", "document.getElementById('details').textContent.includes('<img src=x')")
        check(f"{name}: no element was made of a name", browser.run("document.images.length") == 1 and browser.run("document.title") == "netvale")
        texts = browser.run("document.body.textContent")
        check(f"{name}: markup is text", "vale0:<img src=x onerror=" in texts)
        check(f"{name}: nothing turns text around", "\u202e" not in texts and "\u0000" not in texts)
        check(f"{name}: nothing is wider than the screen", browser.run(WIDE) == 0, browser.run(WIDE))
        picture(browser, f"{name}-odd")
    silent(browser, address)
    browser.run("{const image = document.createElement('img'); image.src = 'data:image/png;base64,AAAA'; document.body.append(image)}")
    browser.until("the policy holds", "true")
    end = time.monotonic() + 10
    while not any("Content Security Policy" in text for text in browser.complaints):
        check("what the policy forbids is not loaded", time.monotonic() < end, browser.complaints)
        browser.run("1")
        time.sleep(0.05)
    refused = browser.run("(() => { try { document.body.innerHTML = '<b>x</b>'; return false } catch { return true } })()")
    check("the policy holds: nothing else is loaded, and no text becomes an element", refused)


with Browser() as browser:
    {"figures": figures, "odd": odd}[sys.argv[1]](browser, *sys.argv[2:4])
