"""The page in a browser: what is drawn, what buttons do, and that names stay text."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from tests.report import made

from factmem.report import write_report

BROWSER = "/usr/bin/chromium"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

SCALING, HOSTILE = "figure-2-left", made.report().sections[1].anchor


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(made.report(), path)
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    if not Path(BROWSER).exists():
        missing = f"there is no {BROWSER}"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def loaded(browser, address):
    """One page for all tests, each of which leaves it as it was; and what went wrong on it."""
    page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
    requests, complaints = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(address)
    yield page, requests, complaints
    page.close()


@pytest.fixture
def page(loaded):
    page, _, complaints = loaded
    before = len(complaints)
    yield page
    assert complaints[before:] == []
    assert page.evaluate("window.broken") is None


def graph(figure, panel):
    return f"[data-figure='{figure}'] .graph[data-panel='{panel}']"


def of_graph(page, figure, panel, what):
    return page.eval_on_selector(graph(figure, panel), f"graph => graph.{what}")


def until(page, holds):
    """Waits for something; playwright's own way would break the page's rules about scripts."""
    for _ in range(100):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"it never came to be that {holds}")


def drawn_lines(page, figure, panel):
    """How many lines are drawn, not how many there are."""
    return page.locator(f"{graph(figure, panel)} .scatterlayer .trace").count()


def test_the_page_opens_from_a_file_and_asks_for_nothing_else(loaded, address):
    _, requests, complaints = loaded
    assert requests == [address]
    assert complaints == []


def test_every_plot_has_its_traces(page):
    for section in made.report().sections:
        for place, panel in enumerate(section.plot.panels):
            drawn = drawn_lines(page, section.anchor, place)
            maps = page.locator(f"{graph(section.anchor, place)} .heatmaplayer image").count()
            over_cells = not hasattr(panel, "levels")
            assert drawn == len(panel.lines) * (2 if over_cells else 1)
            assert maps == over_cells


def test_a_button_hides_a_line_in_all_panels_and_shows_it_again(page):
    button = page.locator(f"[data-figure='{SCALING}'] button", has_text="linear").first
    for pressed, visible, drawn in (("false", "legendonly", (3, 1)), ("true", True, (4, 2))):
        button.click()
        assert button.get_attribute("aria-pressed") == pressed
        for panel in (0, 1):
            assert of_graph(page, SCALING, panel, "data[0].visible") == visible
            assert drawn_lines(page, SCALING, panel) == drawn[panel]


def pressed(page, figure):
    buttons = page.locator(f"[data-figure='{figure}'] button.choice").all()
    return [button.get_attribute("aria-pressed") == "true" for button in buttons]


def test_the_legend_and_the_buttons_stay_in_step(page):
    entry = page.locator(f"{graph(SCALING, 0)} .legend .traces", has_text="other")
    for shown in (False, True):
        page.wait_for_timeout(400)  # two clicks, not a double one
        entry.locator(".legendtoggle").click()
        chosen = f"button[data-line='2'][aria-pressed='{str(shown).lower()}']"
        page.locator(f"[data-figure='{SCALING}'] {chosen}").wait_for()
        assert pressed(page, SCALING) == [True, True, shown, True, True]
        assert drawn_lines(page, SCALING, 0) == 3 + shown


def test_a_double_click_shows_one_line_alone(page):
    entry = page.locator(f"{graph(SCALING, 0)} .legend .traces", has_text="other")
    for alone in (True, False):
        page.wait_for_timeout(400)
        entry.locator(".legendtoggle").dblclick()
        chosen = f"button[data-line='3'][aria-pressed='{str(not alone).lower()}']"
        page.locator(f"[data-figure='{SCALING}'] {chosen}").wait_for()
        # The last line is in the other panel only, to which this legend does not belong.
        assert pressed(page, SCALING) == [not alone, not alone, True, not alone, True]
        assert of_graph(page, SCALING, 1, "data[0].visible") == ("legendonly" if alone else True)
    assert (drawn_lines(page, SCALING, 0), drawn_lines(page, SCALING, 1)) == (4, 2)


def test_axes_switch_between_scales(page):
    button = page.locator(f"[data-figure='{SCALING}'] button[data-panel='0'][data-axis='y']")
    level = page.locator(f"{graph(SCALING, 0)} .annotation", has_text="a level")
    line = page.locator(f"{graph(SCALING, 0)} .shapelayer path").last
    for scale in ("linear", "log"):
        button.click()
        assert button.get_attribute("aria-pressed") == str(scale == "log").lower()
        assert of_graph(page, SCALING, 0, "_fullLayout.yaxis.type") == scale
        # The name of a level goes where its line goes.
        name, drawn = level.bounding_box(), line.bounding_box()
        assert name["y"] < drawn["y"] < name["y"] + name["height"]


def test_chosen_ticks_are_for_the_scale_that_they_were_chosen_for(page):
    button = page.locator(f"[data-figure='{SCALING}'] button[data-panel='0'][data-axis='x']")
    ticks = page.locator(f"{graph(SCALING, 0)} .xtick text")
    chosen = [text for _, text in made.POWERS]
    assert ticks.all_text_contents() == chosen
    button.click()
    assert not set(ticks.all_text_contents()) & set(chosen)
    button.click()
    assert ticks.all_text_contents() == chosen


def colors(page):
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    texts = page.eval_on_selector(
        f"{graph(SCALING, 0)} .legendtext", "text => getComputedStyle(text).fill"
    )
    line = of_graph(page, SCALING, 0, "_fullData[0].line.color")
    return background, texts, line


def test_the_theme_changes_the_page_and_its_plots(page):
    button = page.locator("#theme")
    light = colors(page)
    button.click()
    dark = colors(page)
    assert button.get_attribute("aria-pressed") == "true"
    assert all(before != after for before, after in zip(light, dark, strict=True))
    page.emulate_media(color_scheme="dark")  # who has chosen is not overruled
    button.click()
    assert colors(page) == light
    page.emulate_media(color_scheme="light")


def test_the_page_follows_the_system(browser, address):
    page = browser.new_page(color_scheme="dark")
    page.goto(address)
    dark = colors(page)
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    page.emulate_media(color_scheme="light")
    until(page, "document.getElementById('theme').ariaPressed === 'false'")
    assert all(before != after for before, after in zip(dark, colors(page), strict=True))
    page.close()


def test_names_are_text_in_legends_and_at_axes(page):
    shown = page.locator(f"{graph(HOSTILE, 0)} .legendtext").all_text_contents()
    assert shown == ["".join(name.splitlines()) for name in made.HOSTILE]
    ticks = page.locator(f"{graph(HOSTILE, 0)} .xtick text").all_text_contents()
    assert ticks == list(made.HOSTILE[:5])
    assert page.locator(f"{graph(HOSTILE, 0)} .ytitle").text_content() == made.ENTITY
    assert page.locator(f"{graph(HOSTILE, 0)} .shapelayer text").text_content() == made.SCRIPT
    assert page.locator(".graph :is(a, script, img, b)").count() == 0


def test_names_are_text_in_cells_and_beside_colors(page):
    cells = page.locator(f"{graph(HOSTILE, 1)} .heatmaplayer text").all_text_contents()
    assert {made.BOLD, made.SCRIPT, made.ENTITY, made.TEMPLATE} <= set(cells)
    bar = page.locator(f"{graph(HOSTILE, 2)} .colorbar").text_content()
    assert made.BOLD in bar
    assert made.TEMPLATE in bar


def pointed_at(page, figure, panel, what, across, up):
    """What is shown to those who point at a part of what is drawn."""
    drawn = page.locator(f"{graph(figure, panel)} {what}")
    drawn.scroll_into_view_if_needed()
    box = drawn.bounding_box()
    page.mouse.move(box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"])
    label = page.locator(f"{graph(figure, panel)} .hoverlayer .hovertext")
    label.wait_for(timeout=5000)
    told = label.text_content()
    page.mouse.move(1, 1)
    label.wait_for(state="detached", timeout=5000)
    return told


def test_names_are_text_for_those_who_point_at_lines(page):
    hover = "graph => Plotly.Fx.hover(graph, [{curveNumber: 4, pointNumber: 1}])"
    page.eval_on_selector(graph(HOSTILE, 0), hover)
    label = page.locator(f"{graph(HOSTILE, 0)} .hoverlayer .hovertext")
    told = f"{made.TEMPLATE}{made.SCRIPT} {made.TEMPLATE} 1"
    assert label.text_content().replace(" ", "") == told.replace(" ", "")
    page.eval_on_selector(graph(HOSTILE, 0), "graph => Plotly.Fx.unhover(graph)")


@pytest.mark.parametrize(
    ("panel", "across", "told"),
    [(1, 0.5, made.SCRIPT), (1, 0.9, made.ENTITY), (2, 0.9, made.TEMPLATE)],
)
def test_names_are_text_for_those_who_point_at_cells(page, panel, across, told):
    assert pointed_at(page, HOSTILE, panel, ".heatmaplayer image", across, 0.25) == told


def test_a_mouse_over_a_point_tells_of_it(page):
    told = pointed_at(page, SCALING, 1, ".point >> nth=2", 0.5, 0.5)
    assert told.startswith("linearparameters: 64loss: ")


def test_names_are_text_in_tables(page):
    cells = page.locator(f"[data-figure='{HOSTILE}'] details td").all_text_contents()
    assert set(made.HOSTILE) <= set(cells)
    assert made.CLOSING in page.locator(".claims tbody").text_content()


def test_the_tab_key_reaches_every_control_in_order(page):
    controls = "button, summary, a[href], [tabindex='0']"
    wanted = page.locator(controls).count()
    page.locator(".skip").focus()
    reached = []
    # Regions that scroll are in closed details, so that some are passed over.
    for _ in range(wanted):
        found = (
            f"() => [...document.querySelectorAll(`{controls}`)].indexOf(document.activeElement)"
        )
        reached.append(page.evaluate(found))
        page.keyboard.press("Tab")
    closed = page.locator("details .scroll").count()
    assert reached[: wanted - closed] == sorted(set(reached) - {-1})
    assert len(set(reached) - {-1}) == wanted - closed


def test_a_key_presses_a_button_and_its_focus_can_be_seen(page):
    button = page.locator(f"[data-figure='{SCALING}'] button", has_text="theory")
    page.locator("#theme").focus()
    page.keyboard.press("Tab")
    button.focus()
    assert button.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
    for pressed in ("false", "true"):
        page.keyboard.press("Space")
        assert button.get_attribute("aria-pressed") == pressed


def test_claims_can_be_chosen_by_their_verdict(page):
    rows = page.locator(".claims tbody tr")
    page.locator("button.filter", has_text="fails, as it should").click()
    visible = [row.locator("code").text_content() for row in rows.all() if row.is_visible()]
    assert visible == ["misread-it"]
    page.locator("button.filter", has_text="all").click()
    assert all(row.is_visible() for row in rows.all())


def test_a_narrow_page_has_no_room_to_scroll_sideways(page):
    page.set_viewport_size({"width": 380, "height": 800})
    # Plots are drawn anew some time after.
    until(
        page, "[...document.querySelectorAll('.graph')].every(each => each._fullLayout.width < 380)"
    )
    assert page.evaluate("document.documentElement.scrollWidth") == 380
    first, second = (page.locator(graph(SCALING, place)).bounding_box() for place in (0, 1))
    assert second["y"] > first["y"] + first["height"] - 1
    page.set_viewport_size({"width": 1200, "height": 900})
    until(
        page, "[...document.querySelectorAll('.graph')].every(each => each._fullLayout.width > 380)"
    )


def test_paper_is_light_and_has_no_buttons(page):
    light = colors(page)
    page.locator("#theme").click()
    dark = colors(page)
    assert dark != light
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert colors(page) == light
    assert not any(button.is_visible() for button in page.locator("button").all())
    assert not page.locator("details").first.is_visible()
    # Lines themselves are printed, whatever plotly calls them.
    assert page.locator(f"{graph(SCALING, 0)} .scatterlayer .js-line").first.is_visible()
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert colors(page) == dark
    page.locator("#theme").click()


def test_the_data_can_be_downloaded(page):
    with page.expect_download() as download:
        page.locator("a[download='figure-2-left.csv']").click()
    assert download.value.suggested_filename == "figure-2-left.csv"
    content = Path(download.value.path()).read_bytes()
    assert content == b"name,parameters,facts\nlinear,16,0.1\n"


def test_a_plot_can_be_saved_as_an_image(page):
    with page.expect_download() as download:
        page.locator(f"[data-figure='{SCALING}'] button.save[data-panel='1']").click()
    assert download.value.suggested_filename == "figure-2-left-2.png"
    assert Path(download.value.path()).read_bytes().startswith(b"\x89PNG")


def test_nothing_offers_to_send_data_away(page):
    assert page.locator(".graph button").count() == 0
