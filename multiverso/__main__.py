"""``python -m multiverso COMMAND``."""

import sys

from multiverso._commands import main

sys.exit(main())
