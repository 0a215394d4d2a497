"""`python -m mycel`."""

import sys

from mycel.cli.main import main

sys.exit(main())
