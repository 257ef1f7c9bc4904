"""`lidfl plan`: what the guarantee promises."""

from dataclasses import dataclass

from rich.console import Console

from lidfl.cli.flags import given_flags, with_flags
from lidfl.cli.output import write_json
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
            write_json(as_dict(made))
        else:
            from lidfl.theory.view import as_rich

            Console(highlight=False).print(as_rich(made, given))


Plan = with_flags(PlanOptions, Question)
