#!/bin/sh
# After an installation or an upgrade. The service is not started by the first installation: it spends tokens on other
# people's servers, so that a person names the targets first.
set -e
unit=llm_canary_exporter.service
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || true
# deb: "configure OLD-VERSION", without a version the first time; rpm: the number of installed versions
case "$1 $2" in
"configure " | "1 ")
	echo "Name your targets in /etc/llm_canary_exporter/llm_canary.yml, then: systemctl enable --now $unit"
	;;
"configure "* | [2-9]*)
	systemctl try-restart "$unit" || true
	;;
esac
