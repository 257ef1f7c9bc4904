"""`lidfl plan`: what the guarantee promises."""

import json
import sys
from dataclasses import dataclass

from rich.console import Console

from lidfl.cli.flags import given_flags, with_flags
from lidfl.theory import Question


@dataclass(kw_only=True)
class PlanOptions:
    """What the guarantee promises: list, votes, clients, validation data, committees and convergence."""

    json: bool = False
    """Write it for programs."""

    def __call__(self) -> None:
        """Print every number with a sentence."""
        from lidfl.theory import as_dict, plan

        given = given_flags(self, Question)
        made = plan(Question(**given))
        if self.json:
            sys.stdout.write(json.dumps(as_dict(made), indent=1, ensure_ascii=False) + "\n")
        else:
            from lidfl.theory.view import as_rich

            Console(highlight=False).print(as_rich(made, given))


Plan = with_flags(PlanOptions, Question)
