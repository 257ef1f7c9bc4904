"""The paper's guarantee in numbers: its formulas, and the corrected ones where its proofs slip.

| module | what it has |
|---|---|
| `votes` | the electorate and its quota, the chance that a vote fails, how many clients and images are enough |
| `committees` | voters drawn at random: the chance that they lack an honest quota, and how many are enough |
| `convergence` | how fast the loss falls while no vote fails, and where the bound ends |
| `question` | what a plan is asked for, and the checks on it |
| `promises`, `joining` | a number with its sentence; what malicious newcomers do to the guarantee |
| `plan` | what the guarantee promises, each number with a sentence |
| `view` | a plan for the terminal; import it only to show one, since it needs rich |

Each module imports only from modules above it. `docs/theory.md` has the statements and proofs.

Letters are the paper's: m clients, k of them honest, γ = k/m; a list of q models; c new candidates a round; and an
(η, p) oracle, which errs by at most η with probability p.
"""

from lidfl.theory.plan import Plan, Section, as_dict, plan
from lidfl.theory.promises import Promise
from lidfl.theory.question import Question
from lidfl.theory.votes import Electorate

__all__ = ["Electorate", "Plan", "Promise", "Question", "Section", "as_dict", "plan"]
