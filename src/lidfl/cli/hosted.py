"""What `lidfl node` and `lidfl server` have in common: a folder that is made ready, and then lived in."""

from abc import ABC, abstractmethod


class Hosted(ABC):
    """A part of a federation on a machine of its own."""

    action: str
    """init or up."""

    def __call__(self) -> None:
        """Make what is needed, or take part."""
        from lidfl.flower import require_flower

        require_flower()
        (self.init if self.action == "init" else self.up)()

    @abstractmethod
    def init(self) -> None:
        """Make what is needed."""

    @abstractmethod
    def up(self) -> None:
        """Take part until stopped."""
