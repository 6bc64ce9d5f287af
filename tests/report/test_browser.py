"""The page in a browser: its plots and buttons, and that names stay text."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright
from tests.plotting import samples as plots
from tests.report import samples

from factmem.plotting.plot import HeatMap
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

SCALING, HOSTILE = "figure-2-left", samples.report().sections[1].anchor


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(samples.report(), path)
    return path.as_uri()


@pytest.fixture(scope="module")
def browser():
    if not Path(BROWSER).exists():
        missing = f"{BROWSER} is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def loaded(browser, address):
    """One page for all tests, which restore it, with its requests and its console messages."""
    page = browser.new_page(viewport={"width": 1200, "height": 900}, color_scheme="light")
    requests, messages = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(address)
    yield page, requests, messages
    page.close()


@pytest.fixture
def page(loaded):
    page, _, messages = loaded
    before = len(messages)
    yield page
    assert messages[before:] == []
    assert page.evaluate("window.broken") is None


def graph(figure, panel):
    return f"[data-figure='{figure}'] .graph[data-panel='{panel}']"


def graph_value(page, figure, panel, path):
    return page.eval_on_selector(graph(figure, panel), f"graph => graph.{path}")


def wait_until(page, condition):
    """Wait for a condition; `page.wait_for_function` would violate the page's script policy."""
    for _ in range(100):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"timeout waiting for {condition}")


def count_lines(page, figure, panel):
    """Count the lines that are drawn, without hidden ones."""
    return page.locator(f"{graph(figure, panel)} .scatterlayer .trace").count()


def test_opens_from_disk_without_requests(loaded, address):
    _, requests, messages = loaded
    assert requests == [address]
    assert messages == []


def test_all_lines_and_maps_are_drawn(page):
    for section in samples.report().sections:
        for index, panel in enumerate(section.plot.panels):
            lines = count_lines(page, section.anchor, index)
            maps = page.locator(f"{graph(section.anchor, index)} .heatmaplayer image").count()
            is_map = isinstance(panel, HeatMap)
            assert lines == len(panel.lines) * (2 if is_map else 1)
            assert maps == is_map


def test_a_button_toggles_a_line_in_all_panels(page):
    button = page.locator(f"[data-figure='{SCALING}'] button", has_text="linear").first
    for pressed, visible, counts in (("false", "legendonly", (3, 1)), ("true", True, (4, 2))):
        button.click()
        assert button.get_attribute("aria-pressed") == pressed
        for panel in (0, 1):
            assert graph_value(page, SCALING, panel, "data[0].visible") == visible
            assert count_lines(page, SCALING, panel) == counts[panel]


def pressed(page, figure):
    buttons = page.locator(f"[data-figure='{figure}'] button.line-toggle").all()
    return [button.get_attribute("aria-pressed") == "true" for button in buttons]


def test_buttons_follow_the_legend(page):
    entry = page.locator(f"{graph(SCALING, 0)} .legend .traces", has_text="other")
    for visible in (False, True):
        page.wait_for_timeout(400)  # two clicks, not a double click
        entry.locator(".legendtoggle").click()
        state = f"button[data-line='2'][aria-pressed='{str(visible).lower()}']"
        page.locator(f"[data-figure='{SCALING}'] {state}").wait_for()
        assert pressed(page, SCALING) == [True, True, visible, True, True]
        assert count_lines(page, SCALING, 0) == 3 + visible


def test_a_double_click_isolates_a_line(page):
    entry = page.locator(f"{graph(SCALING, 0)} .legend .traces", has_text="other")
    for alone in (True, False):
        page.wait_for_timeout(400)
        entry.locator(".legendtoggle").dblclick()
        state = f"button[data-line='3'][aria-pressed='{str(not alone).lower()}']"
        page.locator(f"[data-figure='{SCALING}'] {state}").wait_for()
        # The last line is only in the other panel, which has its own legend.
        assert pressed(page, SCALING) == [not alone, not alone, True, not alone, True]
        assert graph_value(page, SCALING, 1, "data[0].visible") == ("legendonly" if alone else True)
    assert (count_lines(page, SCALING, 0), count_lines(page, SCALING, 1)) == (4, 2)


def test_buttons_switch_the_scale_of_an_axis(page):
    button = page.locator(f"[data-figure='{SCALING}'] button[data-panel='0'][data-axis='y']")
    level = page.locator(f"{graph(SCALING, 0)} .annotation", has_text="a level")
    line = page.locator(f"{graph(SCALING, 0)} .shapelayer path").last
    for scale in ("linear", "log"):
        button.click()
        assert button.get_attribute("aria-pressed") == str(scale == "log").lower()
        assert graph_value(page, SCALING, 0, "_fullLayout.yaxis.type") == scale
        # The name of a level moves with its line.
        name, path = level.bounding_box(), line.bounding_box()
        assert name["y"] < path["y"] < name["y"] + name["height"]


def test_custom_ticks_are_for_the_original_scale(page):
    button = page.locator(f"[data-figure='{SCALING}'] button[data-panel='0'][data-axis='x']")
    ticks = page.locator(f"{graph(SCALING, 0)} .xtick text")
    custom = [text for _, text in plots.TICKS]
    assert ticks.all_text_contents() == custom
    button.click()
    assert not set(ticks.all_text_contents()) & set(custom)
    button.click()
    assert ticks.all_text_contents() == custom


def colors(page):
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    texts = page.eval_on_selector(
        f"{graph(SCALING, 0)} .legendtext", "text => getComputedStyle(text).fill"
    )
    line = graph_value(page, SCALING, 0, "_fullData[0].line.color")
    return background, texts, line


def test_the_theme_button_changes_page_and_plots(page):
    button = page.locator("#theme")
    light = colors(page)
    button.click()
    dark = colors(page)
    assert button.get_attribute("aria-pressed") == "true"
    assert all(before != after for before, after in zip(light, dark, strict=True))
    page.emulate_media(color_scheme="dark")  # the choice of the reader wins
    button.click()
    assert colors(page) == light
    page.emulate_media(color_scheme="light")


def test_the_default_theme_follows_the_system(browser, address):
    page = browser.new_page(color_scheme="dark")
    page.goto(address)
    dark = colors(page)
    assert page.locator("#theme").get_attribute("aria-pressed") == "true"
    page.emulate_media(color_scheme="light")
    wait_until(page, "document.getElementById('theme').ariaPressed === 'false'")
    assert all(before != after for before, after in zip(dark, colors(page), strict=True))
    page.close()


def test_names_are_text_in_legends_and_axes(page):
    legend = page.locator(f"{graph(HOSTILE, 0)} .legendtext").all_text_contents()
    assert legend == ["".join(name.splitlines()) for name in plots.HOSTILE]
    ticks = page.locator(f"{graph(HOSTILE, 0)} .xtick text").all_text_contents()
    assert ticks == list(plots.HOSTILE[:5])
    assert page.locator(f"{graph(HOSTILE, 0)} .ytitle").text_content() == plots.ENTITY
    assert page.locator(f"{graph(HOSTILE, 0)} .shapelayer text").text_content() == plots.SCRIPT
    assert page.locator(".graph :is(a, script, img, b)").count() == 0


def test_names_are_text_in_cells_and_color_bars(page):
    cells = page.locator(f"{graph(HOSTILE, 1)} .heatmaplayer text").all_text_contents()
    assert {plots.BOLD, plots.SCRIPT, plots.ENTITY, plots.TEMPLATE} <= set(cells)
    bar = page.locator(f"{graph(HOSTILE, 2)} .colorbar").text_content()
    assert plots.BOLD in bar
    assert plots.TEMPLATE in bar


def hover_label(page, figure, panel, selector, across, up):
    """Return the label that appears when the mouse is over a part of the plot."""
    target = page.locator(f"{graph(figure, panel)} {selector}")
    target.scroll_into_view_if_needed()
    box = target.bounding_box()
    page.mouse.move(box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"])
    label = page.locator(f"{graph(figure, panel)} .hoverlayer .hovertext")
    label.wait_for(timeout=5000)
    text = label.text_content()
    page.mouse.move(1, 1)
    label.wait_for(state="detached", timeout=5000)
    return text


def test_names_are_text_in_hover_labels_of_lines(page):
    hover = "graph => Plotly.Fx.hover(graph, [{curveNumber: 4, pointNumber: 1}])"
    page.eval_on_selector(graph(HOSTILE, 0), hover)
    label = page.locator(f"{graph(HOSTILE, 0)} .hoverlayer .hovertext")
    text = f"{plots.TEMPLATE}{plots.SCRIPT} {plots.TEMPLATE} 1"
    assert label.text_content().replace(" ", "") == text.replace(" ", "")
    page.eval_on_selector(graph(HOSTILE, 0), "graph => Plotly.Fx.unhover(graph)")


@pytest.mark.parametrize(
    ("panel", "across", "text"),
    [(1, 0.5, plots.SCRIPT), (1, 0.9, plots.ENTITY), (2, 0.9, plots.TEMPLATE)],
)
def test_names_are_text_in_hover_labels_of_cells(page, panel, across, text):
    assert hover_label(page, HOSTILE, panel, ".heatmaplayer image", across, 0.25) == text


def test_hover_labels_show_the_values_of_a_point(page):
    text = hover_label(page, SCALING, 1, ".point >> nth=2", 0.5, 0.5)
    assert text.startswith("linearparameters: 64loss: ")


def test_names_are_text_in_tables(page):
    cells = page.locator(f"[data-figure='{HOSTILE}'] details td").all_text_contents()
    assert set(plots.HOSTILE) <= set(cells)
    assert plots.CLOSING in page.locator(".claims tbody").text_content()


def test_the_tab_key_reaches_every_control_in_order(page):
    controls = "button, summary, a[href], [tabindex='0']"
    count = page.locator(controls).count()
    page.locator(".skip").focus()
    reached = []
    # Scrollable regions in closed details cannot be focused.
    for _ in range(count):
        index = (
            f"() => [...document.querySelectorAll(`{controls}`)].indexOf(document.activeElement)"
        )
        reached.append(page.evaluate(index))
        page.keyboard.press("Tab")
    closed = page.locator("details .scroll").count()
    assert reached[: count - closed] == sorted(set(reached) - {-1})
    assert len(set(reached) - {-1}) == count - closed


def test_buttons_work_from_the_keyboard_and_show_focus(page):
    button = page.locator(f"[data-figure='{SCALING}'] button", has_text="theory")
    page.locator("#theme").focus()
    page.keyboard.press("Tab")
    button.focus()
    assert button.evaluate("button => getComputedStyle(button).outlineStyle") == "solid"
    for pressed in ("false", "true"):
        page.keyboard.press("Space")
        assert button.get_attribute("aria-pressed") == pressed


def test_claims_can_be_filtered_by_verdict(page):
    rows = page.locator(".claims tbody tr")
    page.locator("button.filter", has_text="fails, as expected").click()
    visible = [row.locator("code").text_content() for row in rows.all() if row.is_visible()]
    assert visible == ["misread-it"]
    page.locator("button.filter", has_text="all").click()
    assert all(row.is_visible() for row in rows.all())


def test_narrow_pages_do_not_scroll_sideways(page):
    page.set_viewport_size({"width": 380, "height": 800})
    # Plots are redrawn with a delay.
    wait_until(
        page,
        "[...document.querySelectorAll('.graph')].every(graph => graph._fullLayout.width < 380)",
    )
    assert page.evaluate("document.documentElement.scrollWidth") == 380
    first, second = (page.locator(graph(SCALING, panel)).bounding_box() for panel in (0, 1))
    assert second["y"] > first["y"] + first["height"] - 1
    page.set_viewport_size({"width": 1200, "height": 900})
    wait_until(
        page,
        "[...document.querySelectorAll('.graph')].every(graph => graph._fullLayout.width > 380)",
    )


def test_prints_in_light_colors_without_buttons(page):
    light = colors(page)
    page.locator("#theme").click()
    dark = colors(page)
    assert dark != light
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert colors(page) == light
    assert not any(button.is_visible() for button in page.locator("button").all())
    assert not page.locator("details").first.is_visible()
    # The classes of plotly's lines must not hide them.
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


def test_plots_have_no_mode_bar(page):
    assert page.locator(".graph button").count() == 0
