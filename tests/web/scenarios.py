"""What an operator sees. Each scenario has a broker of its own and takes the world as its argument."""

TAB, ENTER, ESCAPE = 9, 13, 27


def a_driver_appears_when_it_registers_and_goes_when_it_is_killed(world):
    page = world.page()
    assert "No driver is connected." in page.text("#drivers")
    assert "no driver serves SimMachineClass" in page.text("#concerns")
    driver = world.start_driver("sim-a")
    row = page.until_row("drivers", "sim-a", "ready", "SimMachineClass", "0 / 16")
    assert "v1" in row, row
    page.until("all is well", "document.querySelector('#health').innerText.includes('All is well')")
    driver.kill()
    page.until("it is gone", "document.querySelector('#drivers').innerText.includes('No driver')")
    page.until("that is said", "document.querySelector('#news').textContent == 'driver sim-a is gone'")
    no_problems(page)


def a_stuck_operation_is_marked_and_first_and_its_frozen_driver_turns_suspect_and_goes(world):
    page = world.page()
    driver = world.start_driver("sim-frozen")
    page.until_row("drivers", "sim-frozen", "ready")
    world.create_later("hangs-0", "hangs")
    row = page.until_row("running", "hangs-0", "create", "accepted", "sim-frozen")
    assert "stuck" not in row, "slow is not stuck"
    # Sent before the driver is known to be silent, and never accepted.
    world.freeze(driver)
    world.create_later("stuck-0")
    page.until_row("drivers", "sim-frozen", "suspect")
    page.until_row("running", "stuck-0", "stuck", "not accepted for")
    first = "document.querySelector('#running tbody tr')"
    page.until("it is the first", f"{first}.innerText.includes('stuck-0')")
    assert page.value(f"{first}.classList.contains('stuck')")
    assert "is stuck: not accepted" in page.text("#concerns")
    assert "is suspect" in page.text("#concerns")
    world.picture(page, "stuck")
    page.colours("dark")
    world.picture(page, "stuck-dark")
    page.size(390, 844, phone=True)
    world.picture(page, "stuck-phone")
    page.until("it is gone", "document.querySelector('#drivers').innerText.includes('No driver')", 30)
    page.until_row("finished", "stuck-0", "LOST")
    no_problems(page)


def the_page_survives_a_restart_of_the_broker(world):
    page = world.page()
    world.start_driver("sim-a")
    page.until_row("drivers", "sim-a", "ready")
    banner = "document.querySelector('#lost')"
    assert page.value(f"{banner}.hidden")
    page.value("window.sameDocument = true")
    for kill in (world.broker.kill, lambda: world.broker.terminate()):
        kill()
        world.broker.wait(20)
        page.until("the loss is shown", f"{banner}.innerText.includes('Connection lost, trying again')")
        assert "Not connected" in page.text("#health")
        world.picture(page, "lost")
        world.start_broker()
        page.until("the banner goes", f"{banner}.hidden")
        page.until_row("drivers", "sim-a", "ready")
    assert page.value("window.sameDocument"), "nobody had to load it again"
    page.problems = [p for p in page.problems if p[0] != "network"]
    no_problems(page)


def a_drivers_page_is_reached_by_keyboard_and_tells_its_history(world):
    driver = world.start_driver("sim-a")
    page = world.page()
    page.until_row("drivers", "sim-a", "ready")
    assert world.machines("create", "w-0")
    assert not world.machines("create", "bad-0", class_name="fails")
    for _ in range(20):
        page.press("Tab", TAB)
        if page.value("document.activeElement.getAttribute('href')?.startsWith('#driver/')"):
            break
    assert page.value("document.activeElement.matches(':focus-visible')")
    assert page.value("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press("Enter", ENTER)
    page.until_row("driver-operations", "w-0", "OK")
    page.until_row("driver-operations", "bad-0", "UNAVAILABLE")
    page.until_row("driver-history", "registered")
    assert page.text("#driver-title").startswith("sim-a")
    assert "1 good, 1 failed" in page.text("#driver-facts")
    world.picture(page, "driver")
    driver.kill()
    page.until_row("driver-history", "over")
    page.until("it is marked as gone", "document.querySelector('#driver-title').innerText == 'sim-a gone'")
    assert page.text("#driver-note").startswith("Gone since "), page.text("#driver-note")
    world.picture(page, "driver-gone")
    page.go(f"http://{world.admin}/#driver/sim-a")
    page.until("it is known by its instance, too", "document.querySelector('#driver-title').innerText == 'sim-a gone'")
    page.go(f"http://{world.admin}/#driver/0123456789abcdef")
    page.until("that is said", "document.querySelector('#driver-note').innerText.includes('No such driver')")
    # A broker that does not know the session answers 404, which the console tells.
    page.problems = [p for p in page.problems if "404" not in p[1]]
    no_problems(page)


def charts_show_rate_and_latency_by_verb_and_kind(world):
    world.start_driver("sim-a")
    world.start_driver("sim-b", "--capacity", "4")
    page = world.page()
    page.until_row("drivers", "sim-b", "ready")
    for n in range(16):
        assert world.machines("create", f"w-{n}")
        if n % 3 == 0:
            assert world.machines("delete", f"w-{n}")
            assert world.machines("list")
        if n % 7 == 0:
            world.machines("create", f"bad-{n}", class_name="fails")
    world.create_later("hangs-0", "hangs")
    cards = "[...document.querySelectorAll('#pace figure')].map(card => card.innerText)"
    page.until("a card for create", f"{cards}.some(card => /^create SimMachineClass/.test(card))")
    page.until("a card for delete", f"{cards}.some(card => /^delete SimMachineClass/.test(card))")
    page.until("bars", "document.querySelectorAll('#pace rect.bar').length > 2")
    page.until_row("running", "hangs-0", "accepted")
    page.size(1400, 1180)
    world.picture(page, "overview-light")
    page.colours("dark")
    world.picture(page, "overview-dark")
    page.size(390, 1700, phone=True)
    world.picture(page, "overview-phone")
    assert page.value("document.documentElement.scrollWidth <= innerWidth"), "no sideways scrolling"
    no_problems(page)


def names_and_messages_are_never_markup(world):
    page = world.page()
    world.start_driver("<img src=x onerror=alert(1)>")
    page.until_row("drivers", "<img src=x onerror=alert(1)>", "ready")
    assert page.value("document.querySelectorAll('main img').length") == 0
    no_problems(page)


def nothing_comes_from_elsewhere(world):
    page = world.page()
    loaded = page.value("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert loaded and all(name.startswith(f"http://{world.admin}/") for name in loaded), loaded
    # The policy holds: a script in the page is not run, and that is told.
    page.value("document.body.append(Object.assign(document.createElement('script'),"
               "{textContent: 'window.broken = true'}))")
    assert page.value("window.broken") is None
    assert any("Content Security Policy" in text for _, text in page.problems), page.problems


def an_operator_logs_in_with_a_token_and_out_again(world):
    world.guard()
    page = world.login_page()
    assert page.value("document.activeElement.id") == "token", "one can type at once"
    assert page.text(".trouble") == ""
    world.picture(page, "login")
    page.type("mb_not-a-token")
    page.press("Enter", ENTER)
    page.until("that is said", "document.querySelector('.trouble')?.innerText.includes('not known')")
    page.colours("dark")
    world.picture(page, "login-wrong-dark")
    page.size(390, 844, phone=True)
    world.picture(page, "login-phone")
    assert page.value("document.documentElement.scrollWidth <= innerWidth"), "no sideways scrolling"
    page.type(world.tokens["reader"])
    page.press("Enter", ENTER)
    page.until("it is in", "document.querySelector('#me')?.innerText == 'token:reader · read-only'")
    assert page.value("document.cookie") == "", "no script can read the cookie"
    assert page.value("document.documentElement.scrollWidth <= innerWidth"), "no sideways scrolling"
    page.click("#logout button")
    page.until("it is out", "document.querySelector('#token') !== null")
    page.go(f"http://{world.admin}/")
    page.until("and stays out", "document.querySelector('#token') !== null")
    only_401(page)


def who_may_steer_drains_and_evicts_from_a_drivers_page(world):
    world.guard()
    world.start_driver("sim-a")
    page = world.logged_in("steerer")
    page.until("it is known", "document.querySelector('#me').innerText == 'token:steerer · may steer'")
    page.until_row("drivers", "sim-a", "ready")
    page.value("location.hash = '#driver/sim-a'")
    page.until("there are buttons", "document.querySelector('#drain')?.checkVisibility()")
    world.picture(page, "steer")
    page.click("#evict")
    page.until("it asks", "document.querySelector('#ask').open")
    assert page.text("#ask-title") == "Evict sim-a?"
    assert page.value("document.activeElement.id") == "reason", "one can type at once"
    world.picture(page, "evict-dialog")
    page.press("Escape", ESCAPE)
    assert not page.value("document.querySelector('#ask').open")
    assert page.value("document.activeElement.id") == "evict", "back where one was"

    page.value("document.querySelector('#drain').focus()")
    page.press("Enter", ENTER)
    page.until("it asks", "document.querySelector('#ask').open")
    page.press("Enter", ENTER)
    assert page.value("document.querySelector('#ask').open"), "not without a reason"
    page.type("new version <b>")
    page.colours("dark")
    world.picture(page, "drain-dialog-dark")
    page.size(390, 844, phone=True)
    world.picture(page, "drain-dialog-phone")
    page.size(1400, 900)
    page.press("Enter", ENTER)
    page.until("it is done", "!document.querySelector('#ask').open")
    row = page.until_row("driver-history", "asked to leave", "new version <b>")
    assert row
    page.until_row("driver-history", "over")

    world.start_driver("sim-b")
    page.value("location.hash = '#driver/sim-b'")
    page.until("there are buttons", "document.querySelector('#driver-title').innerText == 'sim-b ready'"
               " && document.querySelector('#evict').checkVisibility()")
    page.click("#evict")
    page.until("it asks", "document.querySelector('#ask').open")
    page.type("it hangs")
    page.click("#ask-do")
    page.until_row("driver-history", "over", "it hangs")
    # Between the address and its driver the page may ask for one that is not there yet.
    page.problems = [p for p in page.problems if "404" not in p[1]]
    only_401(page)


def who_may_only_read_sees_no_buttons(world):
    world.guard()
    world.start_driver("sim-a")
    page = world.logged_in("reader")
    page.until_row("drivers", "sim-a", "ready")
    page.value("location.hash = '#driver/sim-a'")
    page.until_row("driver-history", "registered")
    assert page.text("#me") == "token:reader · read-only"
    assert not page.value("document.querySelector('#drain').checkVisibility()")
    assert not page.value("document.querySelector('#evict').checkVisibility()")
    only_401(page)


def who_loses_the_right_to_steer_or_to_look_is_told(world):
    world.guard()
    world.start_driver("sim-a")
    steerer = world.logged_in("steerer")
    steerer.until_row("drivers", "sim-a", "ready")
    steerer.value("location.hash = '#driver/sim-a'")
    steerer.until("there are buttons", "document.querySelector('#evict')?.checkVisibility()")
    steerer.click("#evict")
    steerer.until("it asks", "document.querySelector('#ask').open")
    steerer.type("it hangs")
    # What the page cannot know yet the broker does.
    world.change_policy("operator: steer", "operator: read")
    world.until_log("policy taken over")
    steerer.press("Enter", ENTER)
    steerer.until("that is said", "document.querySelector('#ask-trouble').innerText"
                  " == 'token:steerer may not steer as operator'")
    world.picture(steerer, "steer-refused")
    steerer.press("Escape", ESCAPE)
    steerer.value("location.hash = ''")
    steerer.value("location.hash = '#driver/sim-a'")
    steerer.until("there are none", "document.querySelector('#steer').hidden")
    steerer.until_row("driver-history", "registered")
    assert "evicted" not in steerer.text("#driver-history")
    world.change_policy("token:steerer", "token:nobody")
    steerer.until("it has to log in", "document.querySelector('#token') !== null")
    assert "no rule" in steerer.text(".trouble") or "may not read" in steerer.text(".trouble")
    world.picture(steerer, "no-longer")


def no_problems(page):
    page.value("0")  # Whatever was told until now is heard.
    assert not page.problems, page.problems


def only_401(page):
    """The console tells of every answer of the kind, and these are meant."""
    page.value("0")
    page.problems = [p for p in page.problems if "401" not in p[1]]
    no_problems(page)
