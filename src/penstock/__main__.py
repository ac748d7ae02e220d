"""`python -m penstock`: the command line without the script that an installation adds."""

from __future__ import annotations

import sys

from penstock.cli.app import main

sys.exit(main())
