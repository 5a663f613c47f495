#!/bin/sh
# After a removal. The state (the token ledger in /var/lib/private/llm_canary_exporter) stays, and so do keys that were
# put into /etc/llm_canary_exporter/credentials.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
fi
