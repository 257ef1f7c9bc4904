"""`lidfl plan`: what the guarantee promises a federation, each number with a sentence, before anything is run."""

from lidfl.planning.figures import Figure, Plan, Section, as_dict, plan
from lidfl.planning.question import Question
from lidfl.planning.view import as_rich

__all__ = ["Figure", "Plan", "Question", "Section", "as_dict", "as_rich", "plan"]
