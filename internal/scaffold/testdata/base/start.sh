#!/bin/sh
# ${HOME} and ${PATH:-/bin} are the shell's business.
exec web --home "${HOME}"
