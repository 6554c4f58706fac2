#!/bin/sh
# Chromium and its driver for tests/test_report_browser.py, where they can be installed; else those tests are skipped.
here() { command -v chromium >/dev/null && command -v chromedriver >/dev/null; }
fetch() { DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -q --no-install-recommends chromium chromium-driver; }
here && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "Installing Chromium for the tests of the report."
    { fetch || { timeout 120 apt-get update -q && fetch; }; } >/dev/null 2>&1
fi
here || echo "Chromium is not installed: the tests of the report in a browser will be skipped."
